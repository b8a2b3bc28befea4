// SPDX-License-Identifier: Apache-2.0

//go:build integration

package capi_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/test/capi"
	"github.com/outrigger/outrigger/test/stand"
)

// allKinds: an API server serves the kinds in both versions, with their
// webhooks, as a release installs them, and Cluster API takes the templates.
// There is neither a Docker Engine nor a cloud, so no machine becomes more than
// an object.
func allKinds(t *testing.T, m *capi.Management) {
	m.Run(t, capi.Label, capi.Program{Path: stand.Binary(t, "capi-manager"), Args: []string{"--provider=", "--docker-host=unix:///nowhere/docker.sock"}})
	samples, err := filepath.Glob(filepath.Join(stand.Root(), "config", "samples", "infrastructure_*.yaml"))
	if err != nil || len(samples) == 0 {
		t.Fatalf("samples %s: %v", samples, err)
	}
	for _, f := range samples {
		m.Kubectl(t, "create", "-f", f)
	}
	k := kinds{m}
	t.Run("read in the other version", k.otherVersion)
	t.Run("status in the other version", k.otherStatus)
	t.Run("server-side apply settles", k.applySettles)
	t.Run("defaults", k.defaults)
	t.Run("what is refused", k.refused)
	t.Run("templates", k.templates)
	t.Run("templates of clusters", k.clusterTemplates)
	t.Run("machine pool", k.machinePool)
	t.Run("stored in the other version", k.storedInTheOtherVersion)
}

type kinds struct{ m *capi.Management }

const group = ".infrastructure.cluster.x-k8s.io"

func (k kinds) otherVersion(t *testing.T) {
	for resource, want := range map[string]string{
		"dockerclusters.v1beta1" + group + "/dockercluster-sample":       `"rack-1":{"controlPlane":true}`,
		"dockerclusters.v1beta2" + group + "/dockercluster-v1beta1":      `"failureDomains":[{"controlPlane":true,"name":"fd1"}],"loadBalancer":{"imageRepository":"kindest","imageTag":"v20230606-42a2262b"}`,
		"dockermachines.v1beta2" + group + "/dockermachine-v1beta1":      `"bootstrapTimeout":"3m0s","customImage":"outrigger/node:v1.36.3"`,
		"dockermachines.v1beta1" + group + "/dockermachine-sample":       `{"containerPath":"/data","hostPath":"/srv/data","readOnly":true}`,
		"outriggermachines.v1beta1" + group + "/outriggermachine-sample": `"vcpus":2`,
	} {
		if got := k.m.Kubectl(t, "get", resource, "-o", "jsonpath={.spec}"); !strings.Contains(got, want) {
			t.Errorf("%s: spec %s does not have %s", resource, got, want)
		}
	}
}

// otherStatus: what a client of contract v1beta1 reads and writes.
func (k kinds) otherStatus(t *testing.T) {
	const machine = "/outriggermachine-sample"
	k.m.Kubectl(t, "patch", "outriggermachines.v1beta2"+group+machine, "--subresource=status", "--type=merge", "-p",
		`{"status":{"ready":true,"initialization":{"provisioned":true},"failureDomain":"a","step":"Done"}}`)
	old := k.m.Kubectl(t, "get", "outriggermachines.v1beta1"+group+machine, "-o", "jsonpath={.status.ready} {.spec.failureDomain}")
	if old != "true a" {
		t.Errorf("ready and failureDomain in v1beta1: %s", old)
	}
	k.m.Kubectl(t, "patch", "outriggermachines.v1beta1"+group+machine, "--subresource=status", "--type=merge", "-p",
		`{"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.1"}]}}`)
	hub := k.m.Kubectl(t, "get", "outriggermachines.v1beta2"+group+machine, "-o",
		"jsonpath={.status.initialization.provisioned} {.status.step} {.status.failureDomain} {.status.addresses[0].address}")
	if hub != "true Done a 10.0.0.1" {
		t.Errorf("status in v1beta2 after a change in v1beta1: %s", hub)
	}
}

// applySettles: what is applied again changes nothing, in either version.
func (k kinds) applySettles(t *testing.T) {
	for _, f := range []string{"infrastructure_v1beta1_dockermachine.yaml", "infrastructure_v1beta2_dockermachinetemplate.yaml"} {
		apply := func() string {
			return k.m.Kubectl(t, "apply", "--server-side", "--force-conflicts", "-f", filepath.Join(stand.Root(), "config", "samples", f), "-o", "jsonpath={.metadata.resourceVersion}")
		}
		apply()
		if before, after := apply(), apply(); before != after {
			t.Errorf("%s: applied again, resourceVersion goes from %s to %s", f, before, after)
		}
	}
}

func (k kinds) defaults(t *testing.T) {
	for _, version := range []string{"v1beta2", "v1beta1"} {
		name := "host-only-" + version
		k.m.Apply(t, `{"apiVersion":"infrastructure.cluster.x-k8s.io/`+version+`","kind":"OutriggerCluster",
			"metadata":{"name":"`+name+`","namespace":"default"},"spec":{"controlPlaneEndpoint":{"host":"10.0.0.1","port":`+map[string]string{"v1beta2": "6443", "v1beta1": "0"}[version]+`}}}`)
		if port := k.m.Kubectl(t, "get", "outriggerclusters.v1beta2"+group+"/"+name, "-o", "jsonpath={.spec.controlPlaneEndpoint.port}"); port != "6443" {
			t.Errorf("%s: port %s", version, port)
		}
	}
}

func (k kinds) refused(t *testing.T) {
	ofAnother := filepath.Join(t.TempDir(), "machine.json")
	err := os.WriteFile(ofAnother, []byte(`{"apiVersion":"infrastructure.cluster.x-k8s.io/v1beta1","kind":"DockerMachine",
		"metadata":{"name":"another","namespace":"default"},"spec":{"bootstrapped":true}}`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"by webhook":      {k.patch("dockermachines/dockermachine-sample", `{"spec":{"customImage":"A B"}}`), "is not the name of an image"},
		"by schema":       {k.patch("outriggermachines/outriggermachine-sample", `{"spec":{"instanceType":"large"}}`), "already says how large the machine is"},
		"fixed":           {k.patch("dockerclusters/dockercluster-sample", `{"spec":{"subnet":"172.31.0.0/24"}}`), "the addresses of the machines are in it"},
		"in v1beta1":      {k.patch("dockermachines.v1beta1"+group+"/dockermachine-sample", `{"spec":{"providerID":"aws:///x"}}`), "begin with docker:////"},
		"not ours":        {[]string{"create", "-f", ofAnother}, `unknown field "spec.bootstrapped"`},
		"damaged by hand": {k.patch("dockermachines.v1beta1"+group+"/dockermachine-sample", `{"metadata":{"annotations":{"cluster.x-k8s.io/conversion-data":"{"}}}`), "not as it was written"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := k.m.TryKubectl(c.args...)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("kubectl %q: error %v does not say %q", c.args, err, c.want)
			}
		})
	}
}

func (k kinds) patch(object, patch string) []string {
	resource, name, _ := strings.Cut(object, "/")
	if !strings.Contains(resource, ".") {
		resource += group
	}
	return []string{"patch", resource, name, "-n", "default", "--type=merge", "-p", patch}
}

// templates change for nobody but a topology that only asks.
func (k kinds) templates(t *testing.T) {
	ctx := context.Background()
	changed := func(annotations map[string]string) *infrav1.DockerMachineTemplate {
		o := &infrav1.DockerMachineTemplate{}
		o.Namespace, o.Name = "default", "dockermachinetemplate-sample"
		if err := k.m.Client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
		o.Annotations = annotations
		o.Spec.Template.Spec.CustomImage = "other"
		return o
	}
	rehearsal := map[string]string{clusterv1.TopologyDryRunAnnotation: ""}
	if err := k.m.Client.Update(ctx, changed(nil)); err == nil || !strings.Contains(err.Error(), "make another one") {
		t.Errorf("a template has changed: %v", err)
	}
	if err := k.m.Client.Update(ctx, changed(nil), client.DryRunAll); err == nil {
		t.Error("the dry run of somebody passes")
	}
	if err := k.m.Client.Update(ctx, changed(rehearsal)); err == nil {
		t.Error("a template with the annotation of a dry run has changed")
	}
	if err := k.m.Client.Update(ctx, changed(rehearsal), client.DryRunAll); err != nil {
		t.Errorf("the dry run of a topology: %v", err)
	}
	k.m.Kubectl(t, "patch", "dockermachinetemplates"+group, "dockermachinetemplate-sample", "-n", "default", "--subresource=status", "--type=merge", "-p",
		`{"status":{"capacity":{"cpu":"2"},"nodeInfo":{"architecture":"arm64"}}}`)
}

// clusterTemplates: Cluster API takes what clusterctl makes of the templates
// for Docker, and makes of a class what its variables say.
func (k kinds) clusterTemplates(t *testing.T) {
	for _, flavor := range []string{"", "machinepool", "topology"} {
		args := []string{"generate", "cluster", "a" + flavor, "--target-namespace", "default", "--infrastructure", capi.Name,
			"--kubernetes-version", "v1.36.3", "--control-plane-machine-count", "1", "--worker-machine-count", "2"}
		if flavor != "" {
			args = append(args, "--flavor", flavor)
		}
		k.m.Apply(t, k.m.Clusterctl(t, args...))
	}
	k.m.Kubectl(t, "wait", "clusters/atopology", "--for=condition=TopologyReconciled", "--timeout=4m")
	k.m.Kubectl(t, "patch", "clusters", "atopology", "--type=merge", "-p", `{"spec":{"topology":{
		"variables":[{"name":"nodeImage","value":"node:1"},{"name":"loadbalancerImage","value":"lb:1"},{"name":"preLoadImages","value":["a:1"]}]}}}`)
	const node = `{"customImage":"node:1","preLoadImages":["a:1"]}`
	for path, want := range map[string]string{
		"dockermachinetemplates {.items[*].spec.template.spec}":                     node,
		"dockerclusters {.items[*].spec}":                                           `"loadbalancerImage":"lb:1"`,
		"kubeadmcontrolplanes {.items[*].spec.kubeadmConfigSpec.initConfiguration}": `{{ ds.meta_data.provider_id }}`,
	} {
		resource, path, _ := strings.Cut(path, " ")
		capi.Eventually(t, resource+" to have "+want, func(context.Context) error {
			out, err := k.m.TryKubectl("get", resource, "-l", "cluster.x-k8s.io/cluster-name=atopology", "-o", "jsonpath="+path)
			// Two templates of machines, for which others may still be in use.
			if err == nil && strings.Count(out, want) < 1+strings.Count(resource, "dockermachinetemplates") {
				err = errors.New(out)
			}
			return err
		})
	}
}

// machinePool: what a pool makes for core to find, and takes away again. The
// infrastructure and the bootstrap data are only said to be there.
func (k kinds) machinePool(t *testing.T) {
	k.m.Kubectl(t, "patch", "clusters", "amachinepool", "--subresource=status", "--type=merge", "-p", `{"status":{"initialization":{"infrastructureProvisioned":true}}}`)
	k.m.Kubectl(t, "patch", "machinepools", "amachinepool-mp-0", "--type=merge", "-p", `{"spec":{"template":{"spec":{"bootstrap":{"configRef":null,"dataSecretName":"data"}}}}}`)
	k.awaitPool(t, "amachinepool-mp-0-0 amachinepool-mp-0-1")
	k.m.Kubectl(t, "delete", "dockermachinepools", "amachinepool-mp-0", "--timeout=4m")
	k.awaitPool(t, "")
}

func (k kinds) awaitPool(t *testing.T, want string) {
	t.Helper()
	capi.Eventually(t, "the pool to have the machines "+want, func(ctx context.Context) error {
		var list infrav1.DockerMachineList
		err := k.m.Client.List(ctx, &list, client.MatchingLabels{clusterv1.MachinePoolNameLabel: "amachinepool-mp-0"})
		var names []string
		for _, m := range list.Items {
			names = append(names, m.Name)
		}
		if is := strings.Join(names, " "); err == nil && is != want {
			err = errors.New(is)
		}
		return err
	})
}
