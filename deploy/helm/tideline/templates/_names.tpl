{{- define "tideline.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "tideline.fullname" -}}
{{- $both := ternary .Release.Name (printf "%s-%s" .Release.Name (include "tideline.name" .)) (contains (include "tideline.name" .) .Release.Name) }}
{{- default $both .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "tideline.coordinator" -}}
{{ include "tideline.fullname" . }}-coordinator
{{- end }}

{{/* What a Service, a policy or a Deployment finds pods by; it never changes. Given: root, component. */}}
{{- define "tideline.selector" -}}
app.kubernetes.io/name: {{ include "tideline.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "tideline.labels" -}}
{{ include "tideline.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: tideline
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Given: image, tag to fall back on. */}}
{{- define "tideline.image" -}}
{{- $at := ternary (printf "@%s" .image.digest) "" (not (empty .image.digest)) -}}
{{ .image.repository }}:{{ default .tag .image.tag }}{{ $at }}
{{- end }}

{{- define "tideline.adminSecret" -}}
{{- default (printf "%s-admin" (include "tideline.fullname" .)) .Values.coordinator.adminKey.secret }}
{{- end }}

{{- define "tideline.serviceAccount" -}}
{{- $own := .Values.coordinator.serviceAccount }}
{{- default (ternary (include "tideline.coordinator" .) "default" $own.create) $own.name }}
{{- end }}

{{/* What agents in this cluster call. */}}
{{- define "tideline.advertise" -}}
{{- $here := printf "%s-agents.%s.svc:%v" (include "tideline.fullname" .) .Release.Namespace .Values.coordinator.agentsDoor.port }}
{{- default $here .Values.coordinator.advertise }}
{{- end }}

{{/* A number or a text as an environment variable's value: 1000000 stays 1000000. */}}
{{- define "tideline.plain" -}}
{{- ternary . (toJson .) (kindIs "string" .) | quote }}
{{- end }}
