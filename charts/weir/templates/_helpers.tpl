{{- define "weir.name" -}}
{{- .Values.fullnameOverride | default (eq .Release.Name .Chart.Name | ternary .Release.Name (printf "%s-%s" .Release.Name (.Values.nameOverride | default .Chart.Name))) | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "weir.selector" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "weir.labels" -}}
{{ include "weir.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "weir.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "weir.policyMap" -}}
{{ .Values.existingPolicy | default (printf "%s-policy" (include "weir.name" .)) }}
{{- end -}}

{{- define "weir.scheme" -}}
{{ ternary "HTTPS" "HTTP" (not (empty .Values.tls.secret)) }}
{{- end -}}

{{- /* The file of --config: what the chart decides, and the values of settings. */ -}}
{{- define "weir.settings" -}}
{{- $door := or .Values.settings.upstream (index .Values.settings "forward-auth") .Values.settings.rls -}}
{{- if not $door -}}
{{- fail "settings.upstream is empty: give the address of your API, such as --set settings.upstream=http://api:3000 (or settings.rls, or settings.forward-auth)" -}}
{{- end -}}
{{- $several := or .Values.autoscaling.enabled (gt (int .Values.replicas) 1) -}}
{{- if and $several (not .Values.store.secret) -}}
{{- fail "store.secret is empty, and there are several replicas: each would count by itself, and let the whole limit pass. Name the Secret with the URL of Redis or Valkey, or use one replica" -}}
{{- end -}}
{{- if .Values.autoscaling.enabled -}}
{{- if not (dig "requests" "cpu" "" .Values.resources) -}}
{{- fail "resources.requests.cpu is empty, and autoscaling.cpu is a percentage of it: the autoscaler would never scale" -}}
{{- end -}}
{{- if gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas) -}}
{{- fail "autoscaling.minReplicas is more than autoscaling.maxReplicas: the cluster would refuse the autoscaler" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.serviceMonitor.enabled (not .Values.metrics.open) -}}
{{- fail "serviceMonitor.enabled needs metrics.open=true: without it /metrics asks for a token that Prometheus does not have" -}}
{{- end -}}
{{- $own := dict "listen" ":8080" "metrics" ":9090" "metrics-open" .Values.metrics.open "data" "/var/lib/weir" "policy" "/etc/weir/policy/policy.yaml" "drain-notice" "2s" "drain-timeout" (printf "%ds" (int .Values.drainSeconds)) -}}
{{- if .Values.tls.secret -}}
{{- $_ := set $own "tls-cert" "/etc/weir/tls/tls.crt" -}}
{{- $_ := set $own "tls-key" "/etc/weir/tls/tls.key" -}}
{{- end -}}
{{- toYaml (merge $own .Values.settings) -}}
{{- end -}}
