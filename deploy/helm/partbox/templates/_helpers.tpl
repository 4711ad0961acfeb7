{{/* The name of everything: the release's, with the chart's unless that is in it. */}}
{{- define "partbox.name" -}}
{{- $name := ternary .Release.Name (printf "%s-partbox" .Release.Name) (contains "partbox" .Release.Name) -}}
{{- $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "partbox.selector" -}}
app.kubernetes.io/name: partbox
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: worker
{{- end -}}

{{- define "partbox.labels" -}}
app.kubernetes.io/name: partbox
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Values.image.tag | trunc 63 | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "partbox.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag }}
{{- end -}}

{{/* No root, no rights, no writing but to /tmp. */}}
{{- define "partbox.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "partbox.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* A setting as text: numbers of a values file are floats, and a million would be 1e+06. */}}
{{- define "partbox.text" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) -}}{{ int64 . }}{{- else -}}{{ . }}{{- end -}}
{{- end -}}

{{/* What workers and migration have in common: the authority of the database's certificate, and further volumes. */}}
{{- define "partbox.hasCa" -}}
{{- if or .Values.ca.secret .Values.ca.configMap }}true{{ end -}}
{{- end -}}

{{- define "partbox.caEnv" -}}
{{- if include "partbox.hasCa" . -}}
- {name: PGSSLROOTCERT, value: {{ printf "/etc/partbox/ca/%s" .Values.ca.key | quote }}}
- {name: PGSSLMODE, value: {{ .Values.ca.sslmode | quote }}}
{{- end -}}
{{- end -}}

{{- define "partbox.mounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if include "partbox.hasCa" . }}
- {name: ca, mountPath: /etc/partbox/ca, readOnly: true}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "partbox.volumes" -}}
- {name: tmp, emptyDir: {}}
{{- if .Values.ca.secret }}
- {name: ca, secret: {secretName: {{ .Values.ca.secret | quote }}}}
{{- else if .Values.ca.configMap }}
- {name: ca, configMap: {name: {{ .Values.ca.configMap | quote }}}}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
