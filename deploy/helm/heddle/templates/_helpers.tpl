{{/* Begins the names of all objects, and is the name of the clients' Service. */}}
{{- define "heddle.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- define "heddle.labels" -}}
{{ include "heddle.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "heddle.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "heddle.daemons" -}}
{{ if eq .Values.agents.kind "DaemonSet" }}yes{{ end }}
{{- end -}}

{{/* ---- heddle.yaml. It lists managers alone: agents and gateways join by the registry, so that their number may change. */}}

{{- define "heddle.cluster" -}}
{{- $root := . -}}
{{- $name := include "heddle.fullname" . -}}
cluster:
  name: {{ .Values.clusterName }}
  certs: /run/heddle/certs
  registry: kubernetes://{{ .Release.Namespace }}/{{ $name }}
  status: 0.0.0.0:9464
  managers:
    {{- range $i := until (int .Values.managers.replicas) }}
    {{ $name }}-manager-{{ $i }}: {address: "{{ $name }}-manager-{{ $i }}.{{ $name }}-manager.{{ $root.Release.Namespace }}.svc:7700"}
    {{- end }}
{{- end -}}

{{- define "heddle.agentConfig" -}}
{{- with .Values.agents.devices }}
devices:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.agents.host }}
host:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Without models, which gateways and agents hear of from the manager. */}}
{{- define "heddle.gatewayConfig" -}}
{{- $name := include "heddle.fullname" . -}}
listen: 0.0.0.0:8080
{{- if .Values.gateways.tlsSecret }}
tls: {certificate: /run/heddle/tls/tls.crt, key: /run/heddle/tls/tls.key}
{{- end }}
dataDir: /var/lib/heddle
shutdown_timeout: {{ .Values.shutdownSeconds }}s
{{- $hosts := list $name (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s.svc" $name .Release.Namespace) }}
allowed_hosts: {{ concat $hosts (.Values.config.allowed_hosts | default list) | toJson }}
{{- with omit .Values.config "allowed_hosts" }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "heddle.models" -}}
{{- if .Values.models -}}
models:
  {{- toYaml .Values.models | nindent 2 }}
{{- else -}}
models: {}
{{- end }}
{{- end -}}

{{/* A change of this text restarts the pods of a role. Models change managers only, which tell the others. */}}
{{- define "heddle.checksum" -}}
{{- $root := index . 0 -}}
{{- $text := include "heddle.cluster" $root -}}
{{- if eq (index . 1) "agent" }}{{ $text = cat $text (include "heddle.agentConfig" $root) }}{{ end -}}
{{- if ne (index . 1) "agent" }}{{ $text = cat $text (include "heddle.gatewayConfig" $root) }}{{ end -}}
{{- if eq (index . 1) "manager" }}{{ $text = cat $text (include "heddle.models" $root) }}{{ end -}}
{{- sha256sum $text -}}
{{- end -}}

{{/* ---- Pods ---- */}}

{{- define "heddle.podMeta" -}}
{{- $root := index . 0 -}}
labels:
  {{- include "heddle.labels" $root | nindent 2 }}
  app.kubernetes.io/component: {{ index . 1 }}
annotations:
  checksum/config: {{ include "heddle.checksum" . }}
{{- end -}}

{{- define "heddle.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* A list of the root and the role: what all containers have. */}}
{{- define "heddle.container" -}}
{{- $root := index . 0 -}}
name: {{ index . 1 }}
image: {{ printf "%s:%s" $root.Values.image.repository ($root.Values.image.tag | default $root.Chart.AppVersion) }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- with $root.Values.envFromSecrets }}
envFrom:
  {{- range . }}
  - secretRef: {name: {{ . }}}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "heddle.mounts" -}}
- {name: config, mountPath: /etc/heddle, readOnly: true}
- {name: certs, mountPath: /run/heddle/certs, readOnly: true}
- {name: data, mountPath: /var/lib/heddle}
- {name: tmp, mountPath: /tmp}
{{- end -}}

{{/* A list of the root, the role, and the name of the Secret of its certificates. */}}
{{- define "heddle.volumes" -}}
{{- $name := include "heddle.fullname" (index . 0) -}}
- name: config
  configMap: {name: {{ $name }}}
- name: certs
  secret: {secretName: {{ index . 2 | default (printf "%s-%s-certs" $name (index . 1)) }}, defaultMode: 0440}
- name: tmp
  emptyDir: {}
{{- end -}}

{{/* A list of the root, the role, and the values of its pods: where they run. */}}
{{- define "heddle.scheduling" -}}
{{- $root := index . 0 -}}
{{- $values := index . 2 -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "heddle.selector" $root | nindent 8 }}
        app.kubernetes.io/component: {{ index . 1 }}
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
