{{- define "manners.name" -}}
{{ contains "manners" .Release.Name | ternary .Release.Name (printf "%s-manners" .Release.Name) | trunc 50 | trimSuffix "-" }}
{{- end -}}

{{- define "manners.labels" -}}
app.kubernetes.io/name: manners
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "manners.selector" -}}
app.kubernetes.io/name: manners
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: gateway
{{- end -}}

{{- define "manners.image" -}}
{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end -}}

{{- define "manners.secret" -}}
{{ .Values.secret.name | default (include "manners.name" .) }}
{{- end -}}

{{/* A pod of nobody's root, without rights in the cluster. */}}
{{- define "manners.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch # at every start, it would open the state folder to the group, which the gateway refuses
  seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "manners.container" -}}
image: {{ include "manners.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
resources: {{ toJson .Values.resources }}
{{- end -}}

{{/* A table of TOML, and those inside it. Strings, numbers and lists are written as in JSON. */}}
{{- define "manners.toml" -}}
{{- range $key, $value := .table }}
{{- if not (kindIs "map" $value) }}
{{ $key }} = {{ toJson $value }}
{{- end }}
{{- end }}
{{- range $key, $value := .table }}
{{- if kindIs "map" $value }}
{{- $path := append $.path (regexMatch "^[A-Za-z0-9_-]+$" $key | ternary $key (toJson $key)) }}
[{{ join "." $path }}]
{{- include "manners.toml" (dict "path" $path "table" $value) }}
{{- end }}
{{- end }}
{{- end -}}
