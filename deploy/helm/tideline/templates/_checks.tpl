{{/* What the schema cannot express: combinations that would not work, each with what to do. */}}
{{- define "tideline.checks" -}}
{{- if not (or .Values.coordinator.enabled .Values.agents) }}
{{- fail "There is nothing to install: coordinator.enabled is false and agents is empty. Enable the coordinator, or list agents" }}
{{- end }}
{{- if not (regexMatch "^[a-z][-a-z0-9]*$" (include "tideline.fullname" .)) }}
{{- fail (printf "No Service can be called %s: a name begins with a letter, followed by letters, digits and -. Choose another release name, or set fullnameOverride" (include "tideline.fullname" .)) }}
{{- end }}
{{- if .Values.coordinator.enabled }}
{{- if not .Values.image.coordinator.repository }}
{{- fail "No image is named for coordinators. Build it, push it where the cluster finds it, and set image.coordinator.repository" }}
{{- end }}
{{- include "tideline.checkPorts" . }}
{{- include "tideline.checkService" (dict "service" .Values.coordinator.grpc "name" "coordinator.grpc") }}
{{- include "tideline.checkService" (dict "service" .Values.coordinator.http "name" "coordinator.http") }}
{{- include "tideline.checkDatabase" .Values.coordinator }}
{{- include "tideline.checkParts" .Values.coordinator.parts }}
{{- include "tideline.checkHome" .Values.coordinator }}
{{- include "tideline.checkRoom" .Values.coordinator }}
{{- include "tideline.checkStart" .Values.coordinator }}
{{- include "tideline.checkMonitor" .Values.serviceMonitor }}
{{- end }}
{{- include "tideline.checkAgents" . }}
{{- end }}

{{- define "tideline.checkPorts" -}}
{{- $own := .Values.coordinator }}
{{- if not (or $own.tls.secret .Values.insecure) }}
{{- fail "The coordinator has no certificate: tokens and models would travel unencrypted. Name a Secret with one (coordinator.tls.secret), or set insecure=true on a network that you trust" }}
{{- end }}
{{- if and $own.tls.secret .Values.insecure }}
{{- fail "insecure=true and a certificate (coordinator.tls.secret) contradict each other. Leave out one of them" }}
{{- end }}
{{- if and $own.tls.clientCa.secret (not $own.tls.secret) }}
{{- fail "coordinator.tls.clientCa asks agents for certificates, which takes TLS. Name the coordinator's own certificate too (coordinator.tls.secret)" }}
{{- end }}
{{- if and $own.tls.ca.secret (not $own.tls.secret) }}
{{- fail "coordinator.tls.ca names authorities for agents, which takes TLS. Name the coordinator's own certificate too (coordinator.tls.secret)" }}
{{- end }}
{{- if and $own.ingress.enabled (not $own.ingress.host) }}
{{- fail "coordinator.ingress has no host. Set coordinator.ingress.host to the name that users call" }}
{{- end }}
{{- end }}

{{/* Takes: service, name of the value. */}}
{{- define "tideline.checkService" -}}
{{- if and (eq .service.type "ClusterIP") (or .service.nodePort .service.externalTrafficPolicy) }}
{{- fail (printf "%s is of type ClusterIP, which has no nodePort and no externalTrafficPolicy. Set %s.type to NodePort or LoadBalancer, or leave them out" .name .name) }}
{{- end }}
{{- if and (ne .service.type "LoadBalancer") .service.sourceRanges }}
{{- fail (printf "%s.sourceRanges is for load balancers. Set %s.type=LoadBalancer, or list in networkPolicy who may call" .name .name) }}
{{- end }}
{{- end }}

{{/* Takes: url, name of the value, todo. */}}
{{- define "tideline.checkUrl" -}}
{{- if regexMatch "^[a-z0-9+]+://[^/@]*:[^/]*@|[?&]password=" .url }}
{{- fail (printf "%s.url holds a password, and everyone who may read the release could see it. %s" .name .todo) }}
{{- end }}
{{- end }}

{{- define "tideline.checkDatabase" -}}
{{- $name := "coordinator.database" }}
{{- include "tideline.checkUrl" (dict "url" .database.url "name" $name "todo" "Put it into a Secret and name that (coordinator.database.passwordSecret.name)") }}
{{- include "tideline.checkUrl" (dict "url" .redis.url "name" "coordinator.redis" "todo" "Put the whole URL into a Secret and name that (coordinator.redis.urlSecret.name)") }}
{{- if and .database.url .database.urlSecret.name }}
{{- fail "coordinator.database has both url and urlSecret. Leave out one of them" }}
{{- end }}
{{- if and .redis.url .redis.urlSecret.name }}
{{- fail "coordinator.redis has both url and urlSecret. Leave out one of them" }}
{{- end }}
{{- if and (or .database.passwordSecret.name .database.caSecret.name) (not (or .database.url .database.urlSecret.name)) }}
{{- fail "coordinator.database has a password or a certificate, but no URL. Set coordinator.database.url" }}
{{- end }}
{{- end }}

{{- define "tideline.checkParts" -}}
{{- if and (eq .kind "s3") (not .s3.url) }}
{{- fail "Parts go to a bucket, and none is named. Set coordinator.parts.s3.url to s3://BUCKET/PREFIX" }}
{{- end }}
{{- if and (eq .kind "claim") (not (or .claim.existing .claim.size)) }}
{{- fail "Parts go to a claim, and none is described. Name one (coordinator.parts.claim.existing), or give the size of a new one (coordinator.parts.claim.size)" }}
{{- end }}
{{- if and (ne .kind "s3") .s3.url }}
{{- fail (printf "A bucket is named, but parts go to the %s. Set coordinator.parts.kind=s3, or leave out coordinator.parts.s3.url" .kind) }}
{{- end }}
{{- end }}

{{- define "tideline.checkHome" -}}
{{- $inside := list }}
{{- if not (or .database.url .database.urlSecret.name) }}{{ $inside = append $inside "the database (set coordinator.database.url)" }}{{ end }}
{{- if eq .parts.kind "home" }}{{ $inside = append $inside "the parts (set coordinator.parts.kind to claim or s3)" }}{{ end }}
{{- if and (gt (int .replicas) 1) $inside }}
{{- fail (printf "%d replicas cannot share what is stored in one replica's home: %s. Or set coordinator.replicas=1" (int .replicas) (join ", " $inside)) }}
{{- end }}
{{- if and (gt (int .replicas) 1) (eq .parts.kind "claim") (ne .parts.claim.accessMode "ReadWriteMany") (not .parts.claim.existing) }}
{{- fail (printf "%d replicas cannot share a claim that is %s. Set coordinator.parts.claim.accessMode=ReadWriteMany" (int .replicas) .parts.claim.accessMode) }}
{{- end }}
{{- if and (gt (int .replicas) 1) (eq .home.kind "claim") }}
{{- fail (printf "A home serves one coordinator, and %d replicas would share a claim. Set coordinator.home.kind=scratch" (int .replicas)) }}
{{- end }}
{{- if and (eq .home.kind "scratch") $inside }}
{{- fail (printf "A scratch home is lost with its pod, and with it %s. Or set coordinator.home.kind=claim" (join ", " $inside)) }}
{{- end }}
{{- if and (eq .home.kind "claim") (eq .strategy "RollingUpdate") }}
{{- fail "RollingUpdate would start a second coordinator on the first one's home, which is refused. Set coordinator.strategy=Recreate, or coordinator.home.kind=scratch" }}
{{- end }}
{{- if and (eq .strategy "RollingUpdate") (eq .parts.kind "claim") (not .parts.claim.existing) (ne .parts.claim.accessMode "ReadWriteMany") }}
{{- fail (printf "RollingUpdate would start a second coordinator, perhaps on another machine, which cannot mount a claim that is %s. Set coordinator.parts.claim.accessMode=ReadWriteMany, or coordinator.strategy=Recreate" .parts.claim.accessMode) }}
{{- end }}
{{- end }}

{{- define "tideline.checkRoom" -}}
{{- $cache := .settings.partsCache | default 10 }}
{{- if and (eq .home.kind "scratch") (eq .parts.kind "s3") (lt (include "tideline.bytes" .home.size | float64) (mulf 1.3e9 $cache)) }}
{{- fail (printf "A scratch home of %v has no room for a cache of %v GB of parts, and Kubernetes evicts a pod that needs more. Set coordinator.home.size to %vG or more, or coordinator.settings.partsCache to less" .home.size $cache (ceil (mulf 1.3 $cache))) }}
{{- end }}
{{- end }}

{{- define "tideline.checkStart" -}}
{{- $wait := ternary .settings.wait 60 (hasKey .settings "wait") }}
{{- if le (float64 .startupSeconds) (float64 $wait) }}
{{- fail (printf "A coordinator may wait %v seconds for its database, and is killed after %v. Set coordinator.startupSeconds to more than coordinator.settings.wait" $wait .startupSeconds) }}
{{- end }}
{{- end }}

{{- define "tideline.checkMonitor" -}}
{{- if and .enabled (not .keySecret.name) }}
{{- fail "serviceMonitor has no key, and /metrics asks for one. Make a key with `tideline keys add --name prometheus --role viewer --project all`, put it into a Secret, and name that (serviceMonitor.keySecret.name)" }}
{{- end }}
{{- end }}

{{- define "tideline.checkAgents" -}}
{{- $names := list }}{{ $tokens := list }}{{ $homes := list }}
{{- range .Values.agents }}
{{- $what := printf "The agent %s" .name }}
{{- $token := .token | default dict }}{{ $data := .data | default dict }}{{ $home := .home | default dict }}
{{- if has .name $names }}
{{- fail (printf "%s is listed twice. Give each agent a name of its own" $what) }}
{{- end }}
{{- if not (or (.image | default dict).repository $.Values.image.agent.repository) }}
{{- fail (printf "No image is named for %s. Build it, push it where the cluster finds it, and set image.agent.repository" ($what | replace "The" "the")) }}
{{- end }}
{{- if not $token.secret }}
{{- fail (printf "%s has no token. Make one with `tideline invite --name %s`, put it into a Secret, and name that (token.secret)" $what .name) }}
{{- end }}
{{- $key := printf "%s/%s" $token.secret ($token.key | default "token") }}
{{- if has $key $tokens }}
{{- fail (printf "%s has the same token as another, and a token enrols one agent. Invite it too, and give it a Secret or a key of its own" $what) }}
{{- end }}
{{- if eq (empty $data.existingClaim) (empty $data.hostPath) }}
{{- fail (printf "%s needs its data in one place. Set either data.existingClaim or data.hostPath" $what) }}
{{- end }}
{{- if and $home.existingClaim (has $home.existingClaim $homes) }}
{{- fail (printf "%s has the same home as another (%s), and a home serves one agent. Give it a claim of its own" $what $home.existingClaim) }}
{{- end }}
{{- if and $home.existingClaim (eq $home.existingClaim (default "" $data.existingClaim)) }}
{{- fail (printf "%s has its home and its data in the same claim (%s). Give it a home of its own" $what $home.existingClaim) }}
{{- end }}
{{- if and (gt (int .gpus) 0) (eq (default "" .device) "cpu") }}
{{- fail (printf "%s asks for %d GPUs and computes on the CPU. Leave out device, or gpus" $what (int .gpus)) }}
{{- end }}
{{- if and $.Values.networkPolicy.metricsFrom .metrics (not (contains ":" .metrics)) }}
{{- fail (printf "%s serves its metrics within its own pod alone, and networkPolicy.metricsFrom lets others read them. Set metrics to 0.0.0.0:%s" $what .metrics) }}
{{- end }}
{{- if and $.Values.coordinator.enabled $.Values.coordinator.tls.clientCa.secret (not (.tls | default dict).secret) (not .coordinator) }}
{{- fail (printf "%s has no certificate, and this coordinator asks for one (coordinator.tls.clientCa). Make it with `tideline tls client %s`, and name its Secret (tls.secret)" $what .name) }}
{{- end }}
{{- $names = append $names .name }}{{ $tokens = append $tokens $key }}{{ $homes = append $homes $home.existingClaim }}
{{- end }}
{{- end }}
