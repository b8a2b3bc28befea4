// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
)

func findingIf(wrong bool, format string, args ...any) []string {
	if !wrong {
		return nil
	}
	return []string{fmt.Sprintf(format, args...)}
}

func tolerations(o operand) (problems []string) {
	for _, taint := range []string{"node.cloudprovider.kubernetes.io/uninitialized", "node.kubernetes.io/not-ready"} {
		ok := slices.ContainsFunc(o.pod.Tolerations, func(t corev1.Toleration) bool {
			return t.Operator == corev1.TolerationOpExists && (t.Key == taint || t.Key == "") && (t.Effect == corev1.TaintEffectNoSchedule || t.Effect == "")
		})
		problems = append(problems, findingIf(!ok, "does not tolerate %s:NoSchedule", taint)...)
	}
	return problems
}

func hostNetwork(o operand) []string {
	return findingIf(!o.pod.HostNetwork, "hostNetwork is not true")
}

// reserved are the ports of containers.
var reserved = map[string]int32{bundle.Manager: 10258, bundle.NodeManager: 10263}

func ports(o operand) (problems []string) {
	declared := 0
	for _, c := range o.pod.Containers {
		for _, p := range c.Ports {
			declared++
			want, known := reserved[c.Name]
			problems = append(problems, findingIf(!known || p.ContainerPort != want, "container %s declares port %d", c.Name, p.ContainerPort)...)
		}
	}
	return append(problems, findingIf(declared == 0, "no container declares a port")...)
}

func mount(c *corev1.Container, volume, at string) *corev1.VolumeMount {
	return find(c.VolumeMounts, func(m *corev1.VolumeMount) bool {
		return m.Name == volume && (at == "" || path.Clean(m.MountPath) == at)
	})
}

func (o operand) volume(name string) *corev1.Volume {
	return find(o.pod.Volumes, func(v *corev1.Volume) bool { return v.Name == name })
}

const etcKubernetes = "/etc/kubernetes"

// mergedAt is where the merged configuration is, by container.
var mergedAt = map[string]string{bundle.Manager: "/etc/kubernetes-cloud-config", bundle.NodeManager: etcKubernetes}

func etcKube(o operand) (problems []string) {
	if !o.openshift() {
		for _, v := range o.pod.Volumes {
			problems = append(problems, findingIf(v.HostPath != nil && path.Clean(v.HostPath.Path) == etcKubernetes, "volume %s is the node's %s", v.Name, etcKubernetes)...)
		}
		return problems
	}
	for i := range o.pod.Containers {
		c := &o.pod.Containers[i]
		if at, known := mergedAt[c.Name]; known && !o.hasHostEtcKube(c) && !o.hasMerged(c, at) {
			problems = append(problems, fmt.Sprintf("container %s has neither volume host-etc-kube (hostPath %s, type Directory) read-only at %s, nor the emptyDir merged-cloud-config read-only at %s", c.Name, etcKubernetes, etcKubernetes, at))
		}
	}
	return problems
}

func (o operand) hasHostEtcKube(c *corev1.Container) bool {
	v, m := o.volume("host-etc-kube"), mount(c, "host-etc-kube", etcKubernetes)
	return v != nil && v.HostPath != nil && v.HostPath.Path == etcKubernetes && v.HostPath.Type != nil && *v.HostPath.Type == corev1.HostPathDirectory &&
		m != nil && m.ReadOnly
}

func (o operand) hasMerged(c *corev1.Container, at string) bool {
	v, m := o.volume("merged-cloud-config"), mount(c, "merged-cloud-config", at)
	// A volume that does not say what it is, is an emptyDir.
	is := v != nil && (v.EmptyDir != nil || v.VolumeSource == corev1.VolumeSource{})
	return is && m != nil && m.ReadOnly
}

func terminationMessage(o operand) (problems []string) {
	for _, c := range append(slices.Clone(o.pod.InitContainers), o.pod.Containers...) {
		problems = append(problems, findingIf(c.TerminationMessagePolicy != corev1.TerminationMessageFallbackToLogsOnError,
			"container %s has terminationMessagePolicy %q", c.Name, c.TerminationMessagePolicy)...)
	}
	return problems
}

const openshiftCA = "/etc/pki/ca-trust/extracted/pem"

func trustedCA(o operand) (problems []string) {
	v := o.volume("trusted-ca")
	if v == nil || v.ConfigMap == nil || v.ConfigMap.Name != bundle.TrustedCA {
		return []string{"there is no volume trusted-ca of ConfigMap " + bundle.TrustedCA}
	}
	wanted := corev1.KeyToPath{Key: "ca-bundle.crt", Path: "tls-ca-bundle.pem"}
	problems = findingIf(o.openshift() && !slices.Contains(v.ConfigMap.Items, wanted), "volume trusted-ca does not have key ca-bundle.crt as tls-ca-bundle.pem")
	for i := range o.pod.Containers {
		c := &o.pod.Containers[i]
		if _, ours := reserved[c.Name]; ours {
			problems = append(problems, trusts(c, o.openshift())...)
		}
	}
	return problems
}

func trusts(c *corev1.Container, openshift bool) []string {
	if openshift {
		m := mount(c, "trusted-ca", openshiftCA)
		return findingIf(m == nil || !m.ReadOnly, "container %s does not have volume trusted-ca read-only at %s", c.Name, openshiftCA)
	}
	m := mount(c, "trusted-ca", "")
	if m == nil || !m.ReadOnly {
		return []string{fmt.Sprintf("container %s does not have volume trusted-ca read-only", c.Name)}
	}
	named := slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
		return e.Name == "SSL_CERT_DIR" && slices.Contains(strings.Split(e.Value, ":"), m.MountPath)
	})
	return findingIf(!named, "container %s: the variable SSL_CERT_DIR does not name %s", c.Name, m.MountPath)
}

func antiAffinity(o operand) []string {
	if o.kind != "Deployment" {
		return nil
	}
	var terms []corev1.PodAffinityTerm
	if a := o.pod.Affinity; a != nil && a.PodAntiAffinity != nil {
		terms = a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	if len(terms) != 1 {
		return []string{fmt.Sprintf("there are %d required terms of podAntiAffinity", len(terms))}
	}
	t := terms[0]
	problems := findingIf(t.TopologyKey != corev1.LabelHostname, "podAntiAffinity has topologyKey %q", t.TopologyKey)
	same := t.LabelSelector != nil && maps.Equal(t.LabelSelector.MatchLabels, o.object.GetLabels())
	return append(problems, findingIf(!same, "podAntiAffinity's matchLabels are not the Deployment's labels")...)
}

func recreate(o operand) []string {
	return findingIf(o.kind == "Deployment" && o.strategy != "Recreate", "strategy is %q", o.strategy)
}

func replicas(o operand) []string {
	want := int32(2)
	if o.SingleReplica {
		want = 1
	}
	return findingIf(o.kind == "Deployment" && o.replicas != want, "replicas is %d, want %d", o.replicas, want)
}

func labels(o operand) (problems []string) {
	owner := "infrastructure.openshift.io/" + bundle.Manager
	if o.kind == "DaemonSet" {
		owner = "infrastructure.openshift.io/" + bundle.NodeManager
	}
	var selected map[string]string
	if o.selector != nil {
		selected = o.selector.MatchLabels
	}
	app := o.object.GetLabels()["k8s-app"]
	for where, have := range map[string]map[string]string{"the object": o.object.GetLabels(), "its pods": o.template.Labels, "its selector": selected} {
		problems = append(problems, findingIf(app == "" || have["k8s-app"] != app, "%s: label k8s-app is %q", where, have["k8s-app"])...)
		problems = append(problems, findingIf(have[owner] != o.Platform, "%s: label %s is %q, want %q", where, owner, have[owner], o.Platform)...)
	}
	slices.Sort(problems)
	return problems
}

// flags returns the flags of the program in a container, by name without dashes. If a
// flag occurs twice the last one counts, as for the program.
func flags(c *corev1.Container) map[string]string {
	all := map[string]string{}
	for _, part := range append(slices.Clone(c.Command), c.Args...) {
		for _, word := range shellWords(part) {
			if name, is := strings.CutPrefix(word, "--"); is {
				name, value, given := strings.Cut(name, "=")
				if !given {
					value = "true"
				}
				all[name] = value
			}
		}
	}
	return all
}

// shellWords returns the words of a command without quotes, continuations and
// comments. It knows no other syntax: scripts of operands have none.
func shellWords(script string) []string {
	var words []string
	for line := range strings.Lines(script) {
		for _, word := range strings.Fields(line) {
			if strings.HasPrefix(word, "#") {
				break
			}
			if word = strings.Trim(word, `'"`); word != `\` {
				words = append(words, word)
			}
		}
	}
	return words
}

// wantFlags returns a check of the manager's flags, which are names and values: node
// managers have no such flags. The value NAMESPACE is that of the installation.
func wantFlags(wanted ...string) func(operand) []string {
	return func(o operand) (problems []string) {
		c := o.container(bundle.Manager)
		if c == nil {
			return nil
		}
		have := flags(c)
		for flag := range slices.Chunk(wanted, 2) {
			name, want := flag[0], flag[1]
			if want == "NAMESPACE" {
				want = o.Namespace
			}
			problems = append(problems, findingIf(have[name] != want, "container %s has --%s=%s, want %s", c.Name, name, have[name], want)...)
		}
		return problems
	}
}

// start looks at how each main container begins.
func start(o operand) (problems []string) {
	for i := range o.pod.Containers {
		c := &o.pod.Containers[i]
		if o.openshift() {
			problems = append(problems, startsByShell(c)...)
			continue
		}
		shell := len(c.Command) > 0 && slices.Contains([]string{"sh", "bash"}, c.Command[0][strings.LastIndex(c.Command[0], "/")+1:])
		problems = append(problems, findingIf(shell, "container %s starts %s", c.Name, strings.Join(c.Command[:min(1, len(c.Command))], " "))...)
	}
	return problems
}

func startsByShell(c *corev1.Container) []string {
	if len(c.Command) != 3 || c.Command[0] != "/bin/bash" || c.Command[1] != "-c" {
		return findingIf(true, "container %s: command is not [/bin/bash, -c, script]", c.Name)
	}
	problems := findingIf(len(c.Args) > 0, "container %s has args", c.Name)
	script := strings.Join(shellWords(c.Command[2]), " ")
	for _, part := range []string{"set -o allexport", "-f /etc/kubernetes/apiserver-url.env ", "source /etc/kubernetes/apiserver-url.env", "exec "} {
		problems = append(problems, findingIf(!strings.Contains(script, part), "container %s: the script lacks: %s", c.Name, strings.TrimSpace(part))...)
	}
	return problems
}
