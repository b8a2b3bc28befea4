{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}
{{- /* Values as the chart of Confidential Containers' cloud-api-adaptor has them: docs/reference/upstream.md. */ -}}

{{- /* Settings of the chosen provider, which may stand below its other name: dict "root" $ "of" VALUES. */ -}}
{{- define "outrigger.ofProvider" -}}
{{- $name := include "outrigger.provider" .root -}}
{{- toJson (merge (dict) (index .of $name | default dict) (index .of .root.Values.provider | default dict)) -}}
{{- end -}}

{{- define "outrigger.providerConfig" }}{{ include "outrigger.ofProvider" (dict "root" . "of" .Values.providerConfigs) }}{{ end -}}
{{- define "outrigger.providerSecret" }}{{ include "outrigger.ofProvider" (dict "root" . "of" .Values.providerSecrets) }}{{ end -}}

{{- /* VMs of a node. As text 0 is upstream's word for unlimited. */ -}}
{{- define "outrigger.limit" -}}
{{- if and (kindIs "string" .Values.limit) (eq (.Values.limit | toString) "0") }}-1{{ else }}{{ .Values.limit }}{{ end -}}
{{- end -}}

{{- /* The own authority, as JSON, from either place. */ -}}
{{- define "outrigger.tlsCerts" -}}
{{- $theirs := .Values.secrets.tlsCerts | default dict -}}
{{- toJson (dict "ca" (.Values.tlsCerts.ca | default $theirs.caCert) "cert" (.Values.tlsCerts.cert | default $theirs.clientCert) "key" (.Values.tlsCerts.key | default $theirs.clientKey)) -}}
{{- end -}}

{{- define "outrigger.updateStrategy" -}}
{{- $strategy := omit .Values.daemonset.updateStrategy "maxUnavailable" "maxSurge" -}}
{{- $most := .Values.daemonset.updateStrategy.maxUnavailable -}}
{{- if and $most (ne (toString $most) "0%") -}}
{{- $_ := set $strategy "rollingUpdate" (merge (dict "maxUnavailable" $most) ($strategy.rollingUpdate | default dict)) -}}
{{- end -}}
{{- toYaml $strategy -}}
{{- end -}}

{{- /* Labels and annotations of one program: dict "root" $ "of" the values of its part in upstream's chart. */ -}}
{{- define "outrigger.podLabels" -}}
{{- with merge (dict) (.of.podLabels | default dict) .root.Values.podLabels }}{{ toYaml . }}{{ end -}}
{{- end -}}
{{- define "outrigger.accountAnnotations" -}}
{{- with merge (dict) ((.of.serviceAccount | default dict).annotations | default dict) (.root.Values.serviceAccount.annotations | default dict) }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{- /* What upstream's values say that has no effect, or an earlier name; refused ones are an error. */ -}}
{{- define "outrigger.upstreamWarnings" -}}
{{- $table := .Files.Get "generated/upstream.json" | fromJson -}}
{{- range $table.values -}}
{{- $at := $.Values -}}
{{- range splitList "." .path }}{{ if kindIs "map" $at }}{{ $at = get $at . }}{{ else }}{{ $at = "" }}{{ end }}{{ end -}}
{{- if not (or (kindIs "invalid" $at) (has (toString $at) (list "" .default))) -}}
{{- if eq .becomes "refused" }}{{ fail (printf "%s is a value of upstream's chart and may not be %q here: %s" .path (toString $at) .advice) }}{{ end }}
{{ .path }} has no effect: {{ .advice }}
{{- end -}}
{{- end -}}
{{- $set := merge (dict) (include "outrigger.providerConfig" . | fromJson) (include "outrigger.providerSecret" . | fromJson) -}}
{{- range $table.keys -}}
{{- if and (has .provider (list "" (include "outrigger.provider" $))) (not (has (get $set .name | toString | lower) (list "" "false"))) }}
{{ .warning }}
{{- end -}}
{{- end -}}
{{- end -}}
