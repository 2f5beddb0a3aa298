{{/* OnRootMismatch: otherwise each start would make the keys in a home readable by their group, and the agent would refuse them. */}}
{{- define "tideline.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ .Values.user }}
runAsGroup: {{ .Values.user }}
fsGroup: {{ .Values.user }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "tideline.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Service links would set variables such as TIDELINE_HTTP_PORT from the names of Services, and the coordinator reads such variables. */}}
{{- define "tideline.podBasics" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext: {{- include "tideline.podSecurity" . | nindent 2 }}
{{- end }}

{{- define "tideline.database" -}}
{{- with .Values.coordinator.database }}{{ or .url .urlSecret.name }}{{ end }}
{{- end }}

{{- define "tideline.redis" -}}
{{- with .Values.coordinator.redis }}{{ or .url .urlSecret.name }}{{ end }}
{{- end }}

{{- define "tideline.secretEnv" -}}
valueFrom: {secretKeyRef: {name: {{ .name }}, key: {{ .key }}}}
{{- end }}

{{- define "tideline.coordinatorEnv" -}}
{{- $own := .Values.coordinator }}
- {name: HOME, value: /var/lib/tideline}
- {name: TIDELINE_HOME, value: /var/lib/tideline}
- {name: TIDELINE_HOST, value: {{ $own.host | quote }}}
- {name: TIDELINE_GRPC_PORT, value: "7800"}
- {name: TIDELINE_HTTP_PORT, value: "7880"}
{{- with $own.grpc.bulkPort }}
- {name: TIDELINE_BULK, value: "{{ . }}"}
{{- end }}
- {name: TIDELINE_ADVERTISE, value: {{ include "tideline.advertise" . | quote }}}
- {name: TIDELINE_ADMIN_KEY_FILE, value: /secrets/admin/admin.key}
{{- if $own.signingKey.secret }}
- {name: TIDELINE_SIGNING_KEY, value: /secrets/signing/signing.key}
{{- end }}
{{- if .Values.insecure }}
- {name: TIDELINE_INSECURE, value: "1"}
{{- end }}
{{- if $own.tls.secret }}
- {name: TIDELINE_TLS_CERT, value: /secrets/tls/tls.crt}
- {name: TIDELINE_TLS_KEY, value: /secrets/tls/tls.key}
{{- end }}
{{- if $own.tls.ca.secret }}
- {name: TIDELINE_TLS_CA, value: /secrets/agents-ca/ca.crt}
{{- end }}
{{- if $own.tls.clientCa.secret }}
- {name: TIDELINE_TLS_CLIENT_CA, value: /secrets/client-ca/ca.crt}
{{- end }}
{{- include "tideline.databaseEnv" $own.database }}
{{- include "tideline.partsEnv" $own.parts }}
{{- with $own.redis }}
{{- if .url }}
- {name: TIDELINE_REDIS, value: {{ .url | quote }}}
{{- else if .urlSecret.name }}
- name: TIDELINE_REDIS
  {{- include "tideline.secretEnv" .urlSecret | nindent 2 }}
{{- end }}
{{- end }}
{{- with $own.smtpPassword }}
{{- if .secret }}
- name: TIDELINE_SMTP_PASSWORD
  {{- include "tideline.secretEnv" (dict "name" .secret "key" .key) | nindent 2 }}
{{- end }}
{{- end }}
{{- if $own.oidc.clientSecret.name }}
- name: TIDELINE_OIDC_CLIENT_SECRET
  {{- include "tideline.secretEnv" $own.oidc.clientSecret | nindent 2 }}
{{- end }}
{{- if $own.oidc.caSecret.name }}
- {name: TIDELINE_OIDC_CA, value: /secrets/oidc-ca/ca.crt}
{{- end }}
{{- range $name, $value := $own.settings }}
- {name: TIDELINE_{{ snakecase $name | upper }}, value: {{ include "tideline.plain" (kindIs "slice" $value | ternary (join "," $value) $value) }}}
{{- end }}
{{- with $own.env }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "tideline.databaseEnv" -}}
{{- if .url }}
- {name: TIDELINE_DATABASE, value: {{ .url | quote }}}
{{- else if .urlSecret.name }}
- name: TIDELINE_DATABASE
  {{- include "tideline.secretEnv" .urlSecret | nindent 2 }}
{{- end }}
{{- if .passwordSecret.name }}
- name: PGPASSWORD
  {{- include "tideline.secretEnv" .passwordSecret | nindent 2 }}
{{- end }}
{{- if .caSecret.name }}
- {name: PGSSLROOTCERT, value: /secrets/database-ca/ca.crt}
{{- end }}
{{- end }}

{{- define "tideline.partsEnv" -}}
{{- if eq .kind "claim" }}
- {name: TIDELINE_PARTS, value: /parts}
{{- else if eq .kind "s3" }}
- {name: TIDELINE_PARTS, value: {{ .s3.url | quote }}}
{{- with .s3.endpoint }}
- {name: AWS_ENDPOINT_URL, value: {{ . | quote }}}
{{- end }}
{{- with .s3.region }}
- {name: AWS_REGION, value: {{ . | quote }}}
{{- end }}
{{- with .s3.secret }}
- name: AWS_ACCESS_KEY_ID
  {{- include "tideline.secretEnv" (dict "name" . "key" "AWS_ACCESS_KEY_ID") | nindent 2 }}
- name: AWS_SECRET_ACCESS_KEY
  {{- include "tideline.secretEnv" (dict "name" . "key" "AWS_SECRET_ACCESS_KEY") | nindent 2 }}
{{- end }}
{{- if .s3.caSecret.name }}
- {name: AWS_CA_BUNDLE, value: /secrets/store-ca/ca.crt}
{{- end }}
{{- end }}
{{- end }}

{{/* The Secrets that a coordinator mounts: volume, Secret, key, and the name of its file; an empty key: the whole Secret. */}}
{{- define "tideline.coordinatorSecrets" -}}
{{- $own := .Values.coordinator }}
- {volume: admin, secret: {{ include "tideline.adminSecret" . }}, key: {{ $own.adminKey.key }}, file: admin.key}
{{- with $own.signingKey }}{{ if .secret }}
- {volume: signing, secret: {{ .secret }}, key: {{ .key }}, file: signing.key}
{{- end }}{{ end }}
{{- with $own.tls.secret }}
- {volume: tls, secret: {{ . }}, key: "", file: ""}
{{- end }}
{{- with $own.tls.ca }}{{ if .secret }}
- {volume: agents-ca, secret: {{ .secret }}, key: {{ .key }}, file: ca.crt}
{{- end }}{{ end }}
{{- with $own.tls.clientCa }}{{ if .secret }}
- {volume: client-ca, secret: {{ .secret }}, key: {{ .key }}, file: ca.crt}
{{- end }}{{ end }}
{{- with $own.database.caSecret }}{{ if .name }}
- {volume: database-ca, secret: {{ .name }}, key: {{ .key }}, file: ca.crt}
{{- end }}{{ end }}
{{- with $own.oidc.caSecret }}{{ if .name }}
- {volume: oidc-ca, secret: {{ .name }}, key: {{ .key }}, file: ca.crt}
{{- end }}{{ end }}
{{- with $own.parts.s3.caSecret }}{{ if and .name (eq $own.parts.kind "s3") }}
- {volume: store-ca, secret: {{ .name }}, key: {{ .key }}, file: ca.crt}
{{- end }}{{ end }}
{{- end }}

{{- define "tideline.secretMounts" -}}
{{- range . }}
- {name: {{ .volume }}, mountPath: /secrets/{{ .volume }}, readOnly: true}
{{- end }}
{{- end }}

{{- define "tideline.secretVolumes" -}}
{{- range . }}
- name: {{ .volume }}
  secret:
    secretName: {{ .secret }}
    defaultMode: 0440
    {{- if .key }}
    items: [{key: {{ .key }}, path: {{ .file }}}]
    {{- end }}
{{- end }}
{{- end }}

{{/* A scratch home counts as the pod's own storage: a node without room for it would evict the pod. */}}
{{- define "tideline.coordinatorResources" -}}
{{- $all := deepCopy .resources }}
{{- $requests := $all.requests | default dict }}
{{- if not (or (hasKey $requests "ephemeral-storage") (hasKey ($all.limits | default dict) "ephemeral-storage")) }}
{{- $room := ternary .home.size "1Gi" (eq .home.kind "scratch") }}
{{- $_ := set $all "requests" (set $requests "ephemeral-storage" $room) }}
{{- end }}
{{- toYaml $all }}
{{- end }}

{{/* Takes: path, https. */}}
{{- define "tideline.probe" -}}
httpGet: {path: {{ .path }}, port: http, scheme: {{ ternary "HTTPS" "HTTP" .https }}}
timeoutSeconds: 5
{{- end }}

{{/* Takes: root, name, size, storageClass, accessMode, component. The claim outlives the release: it holds keys and runs. */}}
{{- define "tideline.claim" -}}
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "tideline.labels" . | nindent 4 }}
  annotations: {helm.sh/resource-policy: keep}
spec:
  accessModes: [{{ .accessMode }}]
  {{- with .storageClass }}
  storageClassName: {{ . }}
  {{- end }}
  resources: {requests: {storage: {{ .size }}}}
{{- end }}
