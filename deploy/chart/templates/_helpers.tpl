{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}

{{- /* The image of one program: dict "root" $ "name" NAME. */ -}}
{{- define "outrigger.image" -}}
{{- $digest := index .root.Values.image.digests .name -}}
{{ required "image.prefix is required, as there is no public registry with the images: make and push them with `make image push CLOUD_PROVIDER=NAME PREFIX=REGISTRY/FOLDER` and give --set image.prefix=REGISTRY/FOLDER; with images that were imported on every node it is localhost/outrigger" .root.Values.image.prefix }}/{{ .name }}{{ if $digest }}@{{ $digest }}{{ else }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}{{ end }}
{{- end -}}

{{- /* Labels of an object: dict "root" $ "name" NAME. */ -}}
{{- define "outrigger.labels" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/part-of: outrigger
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end -}}

{{- /* The provider's name; charts of others write ibmcloudpowervs. */ -}}
{{- define "outrigger.provider" -}}
{{- $name := required "provider is required: --set provider=NAME" .Values.provider -}}
{{- if eq $name "ibmcloudpowervs" }}{{ $name = "ibmcloud-powervs" }}{{ end -}}
{{- $known := list "alibabacloud" "aws" "azure" "byom" "docker" "gcp" "ibmcloud" "ibmcloud-powervs" "libvirt" "openstack" "qemu" "vsphere" -}}
{{- $config := merge (dict) .Values.config (index .Values.providerConfigs $name | default dict) -}}
{{- if not (or (has $name $known) .Values.plugins.image (hasKey $config "ENABLE_CLOUD_PROVIDER_EXTERNAL_PLUGIN") (hasKey $config "CLOUD_PROVIDER_PLUGIN_PATH")) -}}
{{- fail (printf "provider: %q is none of %s; one of your own comes by plugins.image, or by config.ENABLE_CLOUD_PROVIDER_EXTERNAL_PLUGIN or config.CLOUD_PROVIDER_PLUGIN_PATH" $name (join ", " $known)) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{- define "outrigger.secretName" -}}
{{- if and (eq .Values.secrets.mode "reference") .Values.secrets.existingSecretName -}}
{{- if and .Values.resourceCtrl.enabled (ne .Values.secrets.existingSecretName "peer-pods-secret") -}}
{{- fail "secrets.existingSecretName: the controller reads the Secret peer-pods-secret and no other; give the Secret that name or set resourceCtrl.enabled=false" -}}
{{- end -}}
{{ .Values.secrets.existingSecretName }}
{{- else }}peer-pods-secret{{ end -}}
{{- end -}}

{{- /* Whether an own authority is given, and that it is whole. */ -}}
{{- define "outrigger.ownCA" -}}
{{- $c := include "outrigger.tlsCerts" . | fromJson -}}
{{- if or $c.ca $c.cert $c.key -}}
{{- if not (and $c.ca $c.cert $c.key) }}{{ fail "tlsCerts.ca, tlsCerts.cert and tlsCerts.key belong together: give all three or none" }}{{ end -}}
{{- if .Values.secrets.existingTlsSecretName }}{{ fail "tlsCerts and secrets.existingTlsSecretName exclude each other" }}{{ end -}}
true
{{- else if .Values.secrets.existingTlsSecretName }}true{{ end -}}
{{- end -}}

{{- /* All keys of peer-pods-cm, as JSON. */ -}}
{{- define "outrigger.config" -}}
{{- $all := dict "CLOUD_PROVIDER" (include "outrigger.provider" .) "PEERPODS_LIMIT_PER_NODE" (include "outrigger.limit" .) -}}
{{- if include "outrigger.qemu" . -}}
{{- $_ := set $all "ENABLE_CLOUD_PROVIDER_EXTERNAL_PLUGIN" "true" -}}
{{- $_ := set $all "CLOUD_PROVIDER_EXTERNAL_PLUGIN_PATH" "unix:///run/peerpod/provider-qemu.sock" -}}
{{- end -}}
{{- with .Values.tlsProfile.minVersion }}{{ $_ := set $all "TLS_MIN_VERSION" . }}{{ end -}}
{{- with .Values.tlsProfile.cipherSuites }}{{ $_ := set $all "TLS_CIPHER_SUITES" (kindIs "string" . | ternary . (join "," .)) }}{{ end -}}
{{- if include "outrigger.ownCA" . -}}
{{- $_ := set $all "CACERT_FILE" "/etc/certificates/ca.crt" -}}
{{- $_ := set $all "CERT_FILE" "/etc/certificates/tls.crt" -}}
{{- $_ := set $all "CERT_KEY" "/etc/certificates/tls.key" -}}
{{- end -}}
{{- range $key, $value := .Values.config }}{{ $_ := set $all $key ($value | toString) }}{{ end -}}
{{- range $key, $value := include "outrigger.providerConfig" . | fromJson }}{{ $_ := set $all $key ($value | toString) }}{{ end -}}
{{- toJson $all -}}
{{- end -}}

{{- /* Tokens of the service account, as JSON: those given, or the provider's own. */ -}}
{{- define "outrigger.tokens" -}}
{{- $tokens := .Values.serviceAccountTokens -}}
{{- if not $tokens -}}
{{- $own := dict
  "alibabacloud" (dict "name" "rrsa-token" "audience" "sts.aliyuncs.com" "path" "token" "mountPath" "/var/run/secrets/ack.alibabacloud.com/rrsa-tokens")
  "aws" (dict "name" "aws-token" "audience" "sts.amazonaws.com" "path" "token" "mountPath" "/var/run/secrets/eks.amazonaws.com/serviceaccount")
  "azure" (dict "name" "azure-token" "audience" "api://AzureADTokenExchange" "path" "azure-identity-token" "mountPath" "/var/run/secrets/azure/tokens")
  "ibmcloud" (dict "name" "vault-token" "audience" "iam" "path" "vault-token" "mountPath" "/var/run/secrets/tokens") -}}
{{- with index $own (include "outrigger.provider" .) }}{{ $tokens = list . }}{{ end -}}
{{- end -}}
{{- toJson $tokens -}}
{{- end -}}

{{- define "outrigger.tokenMounts" -}}
{{- range $i, $token := include "outrigger.tokens" . | fromJsonArray }}
- name: {{ $token.name | default (printf "token-%d" $i) }}
  mountPath: {{ $token.mountPath }}
  readOnly: true
{{- end }}
{{- end -}}

{{- define "outrigger.tokenVolumes" -}}
{{- range $i, $token := include "outrigger.tokens" . | fromJsonArray }}
- name: {{ $token.name | default (printf "token-%d" $i) }}
  projected:
    sources:
      - serviceAccountToken:
          audience: {{ $token.audience }}
          expirationSeconds: {{ $token.expirationSeconds | default 3600 | int }}
          path: {{ $token.path | default "token" }}
{{- end }}
{{- end -}}

{{- /* Whether provider qemu runs beside the adaptor. */ -}}
{{- define "outrigger.qemu" -}}
{{- if eq (include "outrigger.provider" .) "qemu" }}true{{ end -}}
{{- end -}}

{{- /* Whether VMs are containers of the node's own Docker engine. */ -}}
{{- define "outrigger.docker" -}}
{{- $config := index .Values.providerConfigs "docker" | default dict -}}
{{- if and (eq (include "outrigger.provider" .) "docker") (hasPrefix "unix://" ($config.DOCKER_HOST | default "unix://")) }}true{{ end -}}
{{- end -}}

{{- define "outrigger.pluginsInit" -}}
- name: plugins
  image: {{ .Values.plugins.image }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  securityContext:
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities:
      drop:
        - ALL
  volumeMounts:
    - name: cloud-providers
      mountPath: /cloud-providers
{{- end -}}

{{- define "outrigger.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ if kindIs "map" . }}{{ .name }}{{ else }}{{ . }}{{ end }}
{{- end }}
{{- end }}
{{- end -}}
