{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}

{{- define "ccm-operator.labels" -}}
app.kubernetes.io/name: ccm-operator
app.kubernetes.io/part-of: outrigger
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}
