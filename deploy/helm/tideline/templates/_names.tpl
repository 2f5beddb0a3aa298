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

{{/* The labels by which a Service, a policy or a Deployment finds pods; they never change. Takes: root, component. */}}
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

{{/* Takes: image, default tag. */}}
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

{{/* The address that agents in this cluster call: the only one that their network policy allows. */}}
{{- define "tideline.agentsService" -}}
{{- printf "%s-grpc.%s.svc:%v" (include "tideline.fullname" .) .Release.Namespace .Values.coordinator.grpc.port }}
{{- end }}

{{/* The address that tokens give to agents. */}}
{{- define "tideline.advertise" -}}
{{- default (include "tideline.agentsService" .) .Values.coordinator.advertise }}
{{- end }}

{{/* A quantity as a number of bytes: 20Gi, 1.5T, 500M, 1024. */}}
{{- define "tideline.bytes" -}}
{{- $units := dict "" 1 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 }}
{{- $units = merge $units (dict "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 "Ei" 1152921504606846976) }}
{{- $text := ternary . (toJson .) (kindIs "string" .) }}
{{- mulf (regexFind "^[0-9.]+" $text | float64) (get $units (regexFind "[a-zA-Z]*$" $text) | float64) }}
{{- end }}

{{/* A number or a text as an environment variable's value: 1000000 stays 1000000. */}}
{{- define "tideline.plain" -}}
{{- ternary . (toJson .) (kindIs "string" .) | quote }}
{{- end }}
