// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
)

// requireError wants an error that has these words, or none if there are none.
func requireError(t *testing.T, err error, words ...string) {
	t.Helper()
	if len(words) == 0 || words[0] == "" {
		if err != nil {
			t.Errorf("refused: %v", err)
		}
		return
	}
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("error %v does not say %q", err, w)
		}
	}
}

func TestDockerClusterSpec(t *testing.T) {
	endpoint := func(host string, port int32) infrav1.ClusterSpec {
		return infrav1.ClusterSpec{ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: host, Port: port}}
	}
	for name, c := range map[string]struct {
		spec infrav1.DockerClusterSpec
		want string
	}{
		"empty":             {},
		"address":           {spec: infrav1.DockerClusterSpec{ClusterSpec: endpoint("172.30.0.2", 6443)}},
		"IPv6 address":      {spec: infrav1.DockerClusterSpec{ClusterSpec: endpoint("fd00::2", 6443)}},
		"name":              {spec: infrav1.DockerClusterSpec{ClusterSpec: endpoint("api.example.com", 6443)}},
		"URL for endpoint":  {spec: infrav1.DockerClusterSpec{ClusterSpec: endpoint("https://api.example.com", 6443)}, want: "spec.controlPlaneEndpoint.host"},
		"image":             {spec: infrav1.DockerClusterSpec{LoadbalancerImage: "registry.example.com:5000/haproxy:2.6@sha256:" + strings.Repeat("a", 64)}},
		"no image":          {spec: infrav1.DockerClusterSpec{LoadbalancerImage: "HAPROXY:"}, want: "spec.loadbalancerImage"},
		"image in parts":    {spec: infrav1.DockerClusterSpec{LoadBalancer: infrav1.DockerLoadBalancer{ImageRepository: "kindest/", ImageTag: "v1"}}},
		"no repository":     {spec: infrav1.DockerClusterSpec{LoadBalancer: infrav1.DockerLoadBalancer{ImageRepository: "a b"}}, want: "spec.loadBalancer.imageRepository"},
		"template":          {spec: infrav1.DockerClusterSpec{LoadBalancer: infrav1.DockerLoadBalancer{ImageTag: "3", CustomHAProxyConfigTemplateRef: infrav1.ConfigMapReference{Name: "t"}}}},
		"template alone":    {spec: infrav1.DockerClusterSpec{LoadBalancer: infrav1.DockerLoadBalancer{CustomHAProxyConfigTemplateRef: infrav1.ConfigMapReference{Name: "t"}}}, want: "spec.loadBalancer.imageRepository"},
		"no tag":            {spec: infrav1.DockerClusterSpec{LoadBalancer: infrav1.DockerLoadBalancer{ImageTag: "a b"}}, want: "spec.loadBalancer.imageTag"},
		"subnet":            {spec: infrav1.DockerClusterSpec{Subnet: "172.30.0.0/24"}},
		"no subnet":         {spec: infrav1.DockerClusterSpec{Subnet: "172.30.0.0"}, want: "spec.subnet"},
		"IPv6 subnet":       {spec: infrav1.DockerClusterSpec{Subnet: "fd00::/64"}, want: "IPv4"},
		"address in subnet": {spec: infrav1.DockerClusterSpec{Subnet: "172.30.0.1/24"}, want: "write 172.30.0.0/24"},
		"small subnet":      {spec: infrav1.DockerClusterSpec{Subnet: "172.30.0.0/29"}, want: "no room"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := dockerCluster.ValidateCreate(t.Context(), &infrav1.DockerCluster{Spec: c.spec})
			requireError(t, err, c.want)
		})
	}
}

func TestDockerMachineSpec(t *testing.T) {
	node := func(s infrav1.DockerNodeSpec) infrav1.DockerMachineSpec {
		return infrav1.DockerMachineSpec{DockerNodeSpec: s}
	}
	mounts := func(m ...infrav1.Mount) infrav1.DockerMachineSpec {
		return node(infrav1.DockerNodeSpec{ExtraMounts: m})
	}
	for name, c := range map[string]struct {
		spec infrav1.DockerMachineSpec
		want string
	}{
		"empty":             {},
		"providerID":        {spec: infrav1.DockerMachineSpec{MachineSpec: infrav1.MachineSpec{ProviderID: "docker:////m"}}},
		"other provider":    {spec: infrav1.DockerMachineSpec{MachineSpec: infrav1.MachineSpec{ProviderID: "aws:///m"}}, want: "spec.providerID"},
		"nameless":          {spec: infrav1.DockerMachineSpec{MachineSpec: infrav1.MachineSpec{ProviderID: "docker:////"}}, want: "spec.providerID"},
		"images":            {spec: node(infrav1.DockerNodeSpec{CustomImage: "node:v1", PreLoadImages: []string{"a/b", "c"}})},
		"no image":          {spec: node(infrav1.DockerNodeSpec{CustomImage: "node:v1:v2"}), want: "spec.customImage"},
		"no preload image":  {spec: node(infrav1.DockerNodeSpec{PreLoadImages: []string{"a", "B"}}), want: "spec.preLoadImages[1]"},
		"timeout":           {spec: node(infrav1.DockerNodeSpec{BootstrapTimeout: &metav1.Duration{Duration: time.Minute}})},
		"no time":           {spec: node(infrav1.DockerNodeSpec{BootstrapTimeout: &metav1.Duration{}}), want: "spec.bootstrapTimeout"},
		"too much time":     {spec: node(infrav1.DockerNodeSpec{BootstrapTimeout: &metav1.Duration{Duration: 25 * time.Hour}}), want: "24h"},
		"resources":         {spec: node(infrav1.DockerNodeSpec{Resources: infrav1.DockerResources{CPU: ptr.To(resource.MustParse("500m")), Memory: ptr.To(resource.MustParse("2Gi"))}})},
		"negative cpu":      {spec: node(infrav1.DockerNodeSpec{Resources: infrav1.DockerResources{CPU: ptr.To(resource.MustParse("-1"))}}), want: "spec.resources.cpu"},
		"little memory":     {spec: node(infrav1.DockerNodeSpec{Resources: infrav1.DockerResources{Memory: ptr.To(resource.MustParse("2"))}}), want: "spec.resources.memory"},
		"mount":             {spec: mounts(infrav1.Mount{HostPath: "/a", ContainerPath: "/b"})},
		"relative hostPath": {spec: mounts(infrav1.Mount{HostPath: "a", ContainerPath: "/b"}), want: "spec.extraMounts[0].hostPath"},
		"relative path":     {spec: mounts(infrav1.Mount{HostPath: "/a", ContainerPath: "b"}), want: "spec.extraMounts[0].containerPath"},
		"over everything":   {spec: mounts(infrav1.Mount{HostPath: "/a", ContainerPath: "/b/.."}), want: "spec.extraMounts[0].containerPath"},
		"twice":             {spec: mounts(infrav1.Mount{HostPath: "/a", ContainerPath: "/b"}, infrav1.Mount{HostPath: "/c", ContainerPath: "/b/"}), want: "spec.extraMounts[1].containerPath"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := dockerMachine.ValidateCreate(t.Context(), &infrav1.DockerMachine{Spec: c.spec})
			requireError(t, err, c.want)
		})
	}
}

// Only the socket itself is warned of, not whatever has some of its letters.
func TestDockerSocketIsWarnedOf(t *testing.T) {
	for hostPath, want := range map[string]int{
		"/var/run/docker.sock": 1, "/var/run/./docker.sock": 1, "/var/run/docker.sock.d": 0, "/srv": 0,
	} {
		m := &infrav1.DockerMachine{}
		m.Spec.ExtraMounts = []infrav1.Mount{{HostPath: hostPath, ContainerPath: "/x"}}
		warnings, err := dockerMachine.ValidateCreate(t.Context(), m)
		if err != nil || len(warnings) != want {
			t.Errorf("%s: warnings %q, error %v, want %d warnings", hostPath, warnings, err, want)
		}
	}
}

func TestOutriggerMachineSpec(t *testing.T) {
	for name, c := range map[string]struct {
		spec infrav1.OutriggerMachineSpec
		want string
	}{
		"empty":          {},
		"sizes":          {spec: infrav1.OutriggerMachineSpec{VCPUs: 2, Memory: ptr.To(resource.MustParse("4Gi"))}},
		"no memory":      {spec: infrav1.OutriggerMachineSpec{Memory: ptr.To(resource.MustParse("0"))}, want: "spec.memory"},
		"tags":           {spec: infrav1.OutriggerMachineSpec{Tags: map[string]string{"team": "a"}}},
		"our tags":       {spec: infrav1.OutriggerMachineSpec{Tags: map[string]string{"Outrigger-key": "a"}}, want: "spec.tags[Outrigger-key]"},
		"nameless tag":   {spec: infrav1.OutriggerMachineSpec{Tags: map[string]string{"": "a"}}, want: "spec.tags"},
		"other provider": {spec: infrav1.OutriggerMachineSpec{MachineSpec: infrav1.MachineSpec{ProviderID: "docker:////m"}}, want: "spec.providerID"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := outriggerMachine.ValidateCreate(t.Context(), &infrav1.OutriggerMachine{Spec: c.spec})
			requireError(t, err, c.want)
		})
	}
}

func TestTemplatesHaveNoProviderID(t *testing.T) {
	m := &infrav1.DockerMachineTemplate{}
	m.Spec.Template.Spec.ProviderID = "docker:////m"
	_, err := dockerMachineTemplate.ValidateCreate(t.Context(), m)
	requireError(t, err, "spec.template.spec.providerID")

	o := &infrav1.OutriggerMachineTemplate{}
	o.Spec.Template.Spec.ProviderID = "outrigger://fake/m"
	_, err = outriggerMachineTemplate.ValidateCreate(t.Context(), o)
	requireError(t, err, "spec.template.spec.providerID")

	p := &infrav1.DockerMachinePoolTemplate{}
	p.Spec.Template.Spec.ProviderIDList = []string{"docker:////m"}
	_, err = dockerMachinePoolTemplate.ValidateCreate(t.Context(), p)
	requireError(t, err, "spec.template.spec.providerIDList")
}

func TestTemplateMetadata(t *testing.T) {
	m := &infrav1.DockerMachineTemplate{}
	m.Spec.Template.ObjectMeta.Labels = map[string]string{"a": "not a value!"}
	_, err := dockerMachineTemplate.ValidateCreate(t.Context(), m)
	requireError(t, err, "spec.template.metadata.labels")
	_, err = dockerMachineTemplate.ValidateUpdate(t.Context(), &infrav1.DockerMachineTemplate{}, m)
	requireError(t, err, "spec.template.metadata.labels")
}

func TestWhatCannotChange(t *testing.T) {
	cluster := func(change func(*infrav1.DockerClusterSpec)) *infrav1.DockerCluster {
		c := &infrav1.DockerCluster{}
		c.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "172.30.0.2", Port: 6443}
		c.Spec.Subnet = "172.30.0.0/24"
		change(&c.Spec)
		return c
	}
	for name, c := range map[string]struct {
		change func(*infrav1.DockerClusterSpec)
		want   string
	}{
		"image":         {change: func(s *infrav1.DockerClusterSpec) { s.LoadbalancerImage = "haproxy" }},
		"host":          {change: func(s *infrav1.DockerClusterSpec) { s.ControlPlaneEndpoint.Host = "b" }, want: "spec.controlPlaneEndpoint.host"},
		"host removed":  {change: func(s *infrav1.DockerClusterSpec) { s.ControlPlaneEndpoint.Host = "" }, want: "spec.controlPlaneEndpoint.host"},
		"port":          {change: func(s *infrav1.DockerClusterSpec) { s.ControlPlaneEndpoint.Port = 1 }, want: "spec.controlPlaneEndpoint.port"},
		"subnet":        {change: func(s *infrav1.DockerClusterSpec) { s.Subnet = "172.31.0.0/24" }, want: "spec.subnet"},
		"load balancer": {change: func(s *infrav1.DockerClusterSpec) { s.DisableLoadBalancer = true }, want: "spec.disableLoadBalancer"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := dockerCluster.ValidateUpdate(t.Context(), cluster(func(*infrav1.DockerClusterSpec) {}), cluster(c.change))
			requireError(t, err, c.want)
		})
	}
}

// TestProviderOfAClusterStays: once it is provisioned; the one that was the default then
// may be named.
func TestProviderOfAClusterStays(t *testing.T) {
	cluster := func(named, noted string, ready bool) *infrav1.OutriggerCluster {
		c := &infrav1.OutriggerCluster{}
		c.Spec.Provider, c.Status.Ready = named, ready
		if noted != "" {
			c.Annotations = map[string]string{infrav1.ProviderAnnotation: noted}
		}
		return c
	}
	for name, c := range map[string]struct {
		before *infrav1.OutriggerCluster
		to     string
		want   string
	}{
		"not provisioned":          {cluster("a", "", false), "b", ""},
		"provisioned":              {cluster("a", "a", true), "b", "spec.provider"},
		"of an earlier version":    {cluster("a", "", true), "b", "at a"},
		"the default is named":     {cluster("", "a", true), "a", ""},
		"another than the default": {cluster("", "a", true), "b", "at a"},
		"the default is not known": {cluster("", "", true), "b", "the default of the manager"},
		"its former name":          {cluster("ibmcloudpowervs", "ibmcloud-powervs", true), "ibmcloud-powervs", ""},
	} {
		t.Run(name, func(t *testing.T) {
			after := c.before.DeepCopy()
			after.Spec.Provider = c.to
			_, err := outriggerCluster.ValidateUpdate(t.Context(), c.before, after)
			requireError(t, err, c.want)
		})
	}
}

func TestEndpointAndProviderIDAreFilledIn(t *testing.T) {
	after := &infrav1.DockerCluster{}
	after.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "a", Port: 1}
	_, err := dockerCluster.ValidateUpdate(t.Context(), &infrav1.DockerCluster{}, after)
	requireError(t, err)

	none, one, other := &infrav1.OutriggerMachine{}, &infrav1.OutriggerMachine{}, &infrav1.OutriggerMachine{}
	one.Spec.ProviderID, other.Spec.ProviderID = "outrigger://fake/1", "outrigger://fake/2"
	_, err = outriggerMachine.ValidateUpdate(t.Context(), none, one)
	requireError(t, err)
	_, err = outriggerMachine.ValidateUpdate(t.Context(), one, other)
	requireError(t, err, "spec.providerID")
}

// An object of a time when less was forbidden can still lose its finalizer.
func TestUnchangedSpecIsNotLookedAt(t *testing.T) {
	before := &infrav1.DockerMachine{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{infrav1.DockerMachineFinalizer}}}
	before.Spec.CustomImage = "not an image"
	after := before.DeepCopy()
	after.Finalizers = nil
	_, err := dockerMachine.ValidateUpdate(t.Context(), before, after)
	requireError(t, err)
	after.Spec.CustomImage = "neither this"
	_, err = dockerMachine.ValidateUpdate(t.Context(), before, after)
	requireError(t, err, "spec.customImage")
}

func TestIdentityStays(t *testing.T) {
	with := func(annotations ...string) *infrav1.OutriggerMachine {
		m := &infrav1.OutriggerMachine{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
		for i := 0; i < len(annotations); i += 2 {
			m.Annotations[annotations[i]] = annotations[i+1]
		}
		return m
	}
	keyed := with(infrav1.KeyAnnotation, "a")
	for name, c := range map[string]struct {
		before, after *infrav1.OutriggerMachine
		want          string
	}{
		"written":           {before: with(), after: keyed},
		"kept":              {before: keyed, after: with(infrav1.KeyAnnotation, "a", "x", "y")},
		"changed":           {before: keyed, after: with(infrav1.KeyAnnotation, "b"), want: infrav1.KeyAnnotation},
		"removed":           {before: keyed, after: with(), want: `must stay "a"`},
		"cluster's changed": {before: with(infrav1.ClusterKeyAnnotation, "a"), after: with(infrav1.ClusterKeyAnnotation, "b"), want: infrav1.ClusterKeyAnnotation},
		"cluster's removed": {before: with(infrav1.ClusterKeyAnnotation, "a"), after: with(), want: infrav1.ClusterKeyAnnotation},
		"cluster's emptied": {before: with(infrav1.ClusterKeyAnnotation, "a"), after: with(infrav1.ClusterKeyAnnotation, ""), want: infrav1.ClusterKeyAnnotation},
		"begun":             {before: keyed, after: with(infrav1.KeyAnnotation, "a", infrav1.ClusterKeyAnnotation, "c", infrav1.BeganAnnotation, "t")},
		"elsewhere":         {before: with(infrav1.ProviderAnnotation, "a"), after: with(infrav1.ProviderAnnotation, "b"), want: infrav1.ProviderAnnotation},
		"began earlier":     {before: with(infrav1.BeganAnnotation, "t"), after: with(infrav1.BeganAnnotation, "s"), want: infrav1.BeganAnnotation},
		"never began":       {before: with(infrav1.BeganAnnotation, "t"), after: with(), want: infrav1.BeganAnnotation},
		"moved":             {before: keyed, after: with(clusterctlv1.DeleteForMoveAnnotation, "")},
		"moved and changed": {before: keyed, after: with(clusterctlv1.DeleteForMoveAnnotation, "", infrav1.KeyAnnotation, "b"), want: infrav1.KeyAnnotation},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := outriggerMachine.ValidateUpdate(t.Context(), c.before, c.after)
			requireError(t, err, c.want)
		})
	}
	_, err := outriggerMachine.ValidateCreate(t.Context(), with(infrav1.KeyAnnotation, "a", infrav1.ClusterKeyAnnotation, "c", infrav1.BeganAnnotation, "t"))
	requireError(t, err) // clusterctl move makes it so

	rehearsal := with(clusterv1.TopologyDryRunAnnotation, "")
	for dryRun, want := range map[bool]string{true: "", false: infrav1.KeyAnnotation} {
		ctx := admission.NewContextWithRequest(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{DryRun: &dryRun}})
		_, err := outriggerMachine.ValidateUpdate(ctx, keyed, rehearsal)
		requireError(t, err, want)
	}
}

func TestTemplatesCannotChange(t *testing.T) {
	before, after := &infrav1.DockerMachineTemplate{}, &infrav1.DockerMachineTemplate{}
	after.Spec.Template.Spec.CustomImage = "other"
	annotated := after.DeepCopy()
	annotated.Annotations = map[string]string{clusterv1.TopologyDryRunAnnotation: ""}
	request := func(dryRun bool) context.Context {
		return admission.NewContextWithRequest(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{DryRun: &dryRun}})
	}
	for name, c := range map[string]struct {
		ctx   context.Context
		after *infrav1.DockerMachineTemplate
		want  string
	}{
		"changed":                      {ctx: request(false), after: after, want: "make another one"},
		"dry run of somebody":          {ctx: request(true), after: after, want: "make another one"},
		"annotation without a dry run": {ctx: request(false), after: annotated, want: "make another one"},
		"dry run of a topology":        {ctx: request(true), after: annotated},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := dockerMachineTemplate.ValidateUpdate(c.ctx, before, c.after)
			requireError(t, err, c.want)
		})
	}

	labelled := before.DeepCopy()
	labelled.Spec.Template.ObjectMeta.Labels = map[string]string{"a": "b"}
	_, err := dockerMachineTemplate.ValidateUpdate(t.Context(), before, labelled)
	requireError(t, err)
}

// No kind of template changes in place.
func TestNoTemplateChanges(t *testing.T) {
	for name, change := range map[string]func() error{
		"DockerClusterTemplate": func() error {
			after := &infrav1.DockerClusterTemplate{}
			after.Spec.Template.Spec.Subnet = "172.30.0.0/24"
			_, err := dockerClusterTemplate.ValidateUpdate(t.Context(), &infrav1.DockerClusterTemplate{}, after)
			return err
		},
		"DockerMachineTemplate": func() error {
			after := &infrav1.DockerMachineTemplate{}
			after.Spec.Template.Spec.CustomImage = "other"
			_, err := dockerMachineTemplate.ValidateUpdate(t.Context(), &infrav1.DockerMachineTemplate{}, after)
			return err
		},
		"DockerMachinePoolTemplate": func() error {
			after := &infrav1.DockerMachinePoolTemplate{}
			after.Spec.Template.Spec.Template.CustomImage = "other"
			_, err := dockerMachinePoolTemplate.ValidateUpdate(t.Context(), &infrav1.DockerMachinePoolTemplate{}, after)
			return err
		},
		"OutriggerClusterTemplate": func() error {
			after := &infrav1.OutriggerClusterTemplate{}
			after.Spec.Template.Spec.FailureDomains = []clusterv1.FailureDomain{{Name: "a"}}
			_, err := outriggerClusterTemplate.ValidateUpdate(t.Context(), &infrav1.OutriggerClusterTemplate{}, after)
			return err
		},
		"OutriggerMachineTemplate": func() error {
			after := &infrav1.OutriggerMachineTemplate{}
			after.Spec.Template.Spec.VCPUs = 2
			_, err := outriggerMachineTemplate.ValidateUpdate(t.Context(), &infrav1.OutriggerMachineTemplate{}, after)
			return err
		},
	} {
		err := change()
		requireError(t, err, "make another one")
		if err != nil && !strings.Contains(err.Error(), name) {
			t.Errorf("%v does not name the %s", err, name)
		}
	}
}

// The dry run of a topology lets only templates change.
func TestDryRunOfACluster(t *testing.T) {
	before := &infrav1.DockerCluster{}
	before.Annotations = map[string]string{clusterv1.TopologyDryRunAnnotation: ""}
	before.Spec.Subnet = "172.30.0.0/24"
	after := before.DeepCopy()
	after.Spec.Subnet = "172.31.0.0/24"
	ctx := admission.NewContextWithRequest(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{DryRun: ptr.To(true)}})
	_, err := dockerCluster.ValidateUpdate(ctx, before, after)
	requireError(t, err, "spec.subnet")
}

func TestEndpointPort(t *testing.T) {
	for want, e := range map[int32]clusterv1.APIEndpoint{0: {}, 443: {Host: "a", Port: 443}, 6443: {Host: "a"}} {
		c := &infrav1.OutriggerCluster{}
		c.Spec.ControlPlaneEndpoint = e
		if err := (endpointPort[*infrav1.OutriggerCluster]{}).Default(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if got := c.Spec.ControlPlaneEndpoint.Port; got != want {
			t.Errorf("port of %+v: %d, want %d", e, got, want)
		}
	}
}
