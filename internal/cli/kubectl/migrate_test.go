// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// upstreamCluster is a cluster with cloud-api-adaptor, as its chart makes it.
func upstreamCluster(t *testing.T) *fakeAPI {
	f := newFakeAPI(t)
	of := func(namespace, name string) o {
		return o{"metadata": o{"name": name, "namespace": namespace, "labels": o{"app": "cloud-api-adaptor"},
			"annotations": o{"meta.helm.sh/release-name": "peerpods", "meta.helm.sh/release-namespace": SystemNamespace}}}
	}
	f.put(api(apps, SystemNamespace, "daemonsets", adaptorName), of(SystemNamespace, adaptorName))
	f.put(api(apps, SystemNamespace, "deployments", "peerpodctrl-controller-manager"), of(SystemNamespace, "peerpodctrl-controller-manager"))
	f.put(api(apps, "peer-pods-webhook-system", "deployments", "peer-pods-webhook-controller-manager"), of("peer-pods-webhook-system", "peer-pods-webhook-controller-manager"))
	f.put(api(admission, "", "mutatingwebhookconfigurations", upstreamWebhook), of("", upstreamWebhook))
	f.put(api(nodeGroup, "", "runtimeclasses", RuntimeClass), of("", RuntimeClass))
	f.put(core(SystemNamespace, "configmaps", configMapName), o{"data": o{"CLOUD_PROVIDER": "libvirt", "LIBVIRT_NET": "default", "LIBVIRT_FIRMWARE": "/f", "PAUSE_IMAGE": "p", "PROXY_TIMEOUT": "5m", "LIBVIRT_TYPO": "x"}})
	f.put(core(SystemNamespace, "secrets", secretName), o{"data": o{}})
	web := f.pod("web", o{"phase": "Running"})
	web["metadata"].(o)["ownerReferences"] = []any{o{"kind": "ReplicaSet", "name": "web"}}
	f.pod("alone", o{"phase": "Running"})
	f.put(api(peerPodGroup, "shop", "peerpods", "web-resource-x"), o{"metadata": o{"name": "web-resource-x", "namespace": "shop"}, "spec": o{"cloudProvider": "libvirt", "instanceID": "i-web"}})
	return f
}

func (f *fakeAPI) plan(want int, args ...string) Plan {
	f.t.Helper()
	code, out, errs := f.run(append([]string{"migrate", "-o", "json"}, args...)...)
	var plan Plan
	if err := json.Unmarshal([]byte(out), &plan); err != nil || code != want {
		f.t.Fatalf("exit code %d, want %d: %v\n%s%s", code, want, err, out, errs)
	}
	return plan
}

func TestMigrateFromTheAdaptor(t *testing.T) {
	f := upstreamCluster(t)
	out := f.succeeds("migrate", "--from", "cloud-api-adaptor", "--plan")
	wants(t, out, "From cloud-api-adaptor; docs/migrate-cloud-api-adaptor.md", "of Helm release peerpods", "6 keys, provider libvirt",
		"Settings: 3 stay as they are.", "LIBVIRT_FIRMWARE  LIBVIRT_EFI_FIRMWARE", "PAUSE_IMAGE       no effect", "LIBVIRT_TYPO      unknown",
		"pod shop/web, with its VM; made again by its ReplicaSet", "pod shop/alone, with its VM; nobody makes it again",
		"1, for 2 pods of class kata-remote", "peer-pods-webhook-controller-manager", upstreamWebhook,
		"helm uninstall peerpods --namespace "+SystemNamespace, "--values values.yaml --set image.prefix=REGISTRY/FOLDER,image.tag=TAG,provider=libvirt --set nodeInstaller.enabled=true", "--take-ownership", "The way back:")
	wantsNot(t, out, "Settle first", "/f")

	// Kata of a release of its own stays.
	f.put(api(nodeGroup, "", "runtimeclasses", RuntimeClass), o{"metadata": o{"annotations": o{"meta.helm.sh/release-name": "kata"}}})
	wants(t, f.succeeds("migrate", "--from", "cloud-api-adaptor"), "--set runtimeClass.create=false")
}

func TestMigrateSaysWhatToSettleFirst(t *testing.T) {
	f := upstreamCluster(t)
	f.put(core(SystemNamespace, "configmaps", configMapName), o{"data": o{"CLOUD_PROVIDER": "libvirt", "TUNNEL_TYPE": "routing", "PROXY_TIMEOUT": "5", "PODS_DIR": "/var/pods", "LIBVIRT_CPU": "two"}})
	f.forbidden[core(SystemNamespace, "secrets", secretName)] = true
	f.put(api(peerPodGroup, "shop", "peerpods", "old"), o{"metadata": o{"name": "old", "namespace": "shop", "deletionTimestamp": ago(time.Hour)}, "spec": o{"instanceID": "i-old"}})
	plan := f.plan(2, "--from=cloud-api-adaptor")
	text, _ := json.Marshal(plan.SettleFirst)
	wants(t, string(text), "TUNNEL_TYPE", "PROXY_TIMEOUT", "PODS_DIR is not below /run/peerpod", "LIBVIRT_CPU", "PeerPod shop/old is in deletion for long", "i-old")
	if len(plan.SettleFirst) != 5 {
		t.Errorf("%d to settle: %s", len(plan.SettleFirst), text)
	}
	found, _ := json.Marshal(plan.Found)
	wants(t, string(found), "Secret "+SystemNamespace+"/"+secretName, "not read")
}

func TestMigrateFailures(t *testing.T) {
	f := newFakeAPI(t)
	for _, c := range []struct{ from, says string }{
		{"--from=cloud-api-adaptor", "nothing to move: DaemonSet " + SystemNamespace + "/" + adaptorName},
		{"--from=cccmo", "nothing to move: Deployment openshift-cloud-controller-manager-operator/"},
		{"--from=capd", "nothing to move: no Deployment has the label"},
		{"--from=vmware", "vmware"},
		{"--plan=false", "migrate changes nothing itself"},
	} {
		args := []string{"migrate", c.from}
		if c.from == "--plan=false" {
			args = append(args, "--from=capd")
		}
		code, _, errs := f.run(args...)
		if code != 1 {
			t.Errorf("%s: exit code %d", c.from, code)
		}
		wants(t, errs, c.says)
	}
	f.put(api(apps, SystemNamespace, "daemonsets", adaptorName), o{"metadata": o{"labels": o{"app.kubernetes.io/part-of": "outrigger"}}})
	_, _, errs := f.run("migrate", "--from=cloud-api-adaptor")
	wants(t, errs, "is Outrigger's: the move is made")
}

func openshift(t *testing.T) *fakeAPI {
	f := newFakeAPI(t)
	f.put(api(apps, cccmoNamespace, "deployments", cccmo), o{"metadata": o{"name": cccmo}})
	f.put(core(cccmoNamespace, "configmaps", operatorImages), o{"data": o{"images.json": "{}"}})
	f.put(api(apps, operandNamespace, "deployments", "aws-cloud-controller-manager"), o{"metadata": o{"name": "aws-cloud-controller-manager", "namespace": operandNamespace}})
	f.put(openshiftConfig+"/infrastructures/cluster", o{"status": o{"infrastructureName": "shop-x7", "controlPlaneTopology": "SingleReplica", "platformStatus": o{"type": "AWS"}}})
	f.put(openshiftConfig+"/clusterversions/version", o{"spec": o{"overrides": []any{o{"kind": "Deployment", "namespace": "a", "name": "b", "unmanaged": true}}},
		"status": o{"desired": o{"version": "4.20.1"}, "conditions": []any{conditionObject("Progressing", "False", "", "")}}})
	f.put(openshiftConfig+"/clusteroperators/"+ccmClusterOperand, o{"status": o{"conditions": []any{conditionObject("Available", "True", "AsExpected", ""), conditionObject("Degraded", "False", "AsExpected", "")}}})
	return f
}

func TestMigrateFromOpenShiftsOperator(t *testing.T) {
	f := openshift(t)
	out := f.succeeds("migrate", "--from", "cccmo")
	wants(t, out, "platform AWS, name shop-x7", "release 4.20.1", "deployments "+operandNamespace+"/aws-cloud-controller-manager", "stays as it is",
		"ccm-operator diff --platform aws --infrastructure-name shop-x7 --images-file images.yaml --single-replica $tls", "tls=$(oc get deployments --namespace "+operandNamespace, "beside your 1", "Deployment a/b", "no pod of the operands")
	wantsNot(t, out, "Settle first")

	f.put(openshiftConfig+"/infrastructures/cluster", o{"status": o{"platformStatus": o{"type": "BareMetal"}}})
	f.put(openshiftConfig+"/clusterversions/version", o{"status": o{"conditions": []any{conditionObject("Progressing", "True", "", "")}}})
	f.put(openshiftConfig+"/clusteroperators/"+ccmClusterOperand, o{"status": o{"conditions": []any{conditionObject("Degraded", "True", "SyncError", "cannot reach the cloud")}}})
	f.put(core(cccmoNamespace, "configmaps", operatorImages), o{})
	plan := f.plan(2, "--from=cccmo")
	text, _ := json.Marshal(plan.SettleFirst)
	wants(t, string(text), "BareMetal has no cloud controller manager", "is being upgraded", "Degraded=True: cannot reach the cloud", "no images.json")

	stack := infrastructure{}
	stack.Status.PlatformStatus.Type, stack.Status.PlatformStatus.Azure.CloudName = "Azure", "AzureStackCloud"
	if stack.bundle() != "azurestackhub" {
		t.Errorf("bundle %q", stack.bundle())
	}
}

func TestMigrateFromDockerProvider(t *testing.T) {
	f := newFakeAPI(t)
	f.put(api(apps, "capd-system", "deployments", "capd-controller-manager"), o{"metadata": o{"name": "capd-controller-manager", "namespace": "capd-system", "labels": o{capiProviderLabel: capdLabel}}})
	f.put(api(apps, "capi-system", "deployments", "capi-controller-manager"), o{"metadata": o{"name": "capi-controller-manager", "namespace": "capi-system", "labels": o{capiProviderLabel: "cluster-api"}}})
	for _, kind := range append(dockerKinds, devKinds...) {
		f.put(api(definitions, "", "customresourcedefinitions", kind+"."+capiInfrastructure), o{"spec": o{"versions": []any{o{"name": "v1alpha4", "served": false}, o{"name": "v1beta1", "served": true}}}})
	}
	group := "/apis/" + capiInfrastructure + "/v1beta1"
	f.put(api(group, "shop", "dockerclusters", "one"), o{"metadata": o{"name": "one", "namespace": "shop", "labels": o{capiClusterLabel: "first"}}})
	f.put(api(group, "shop", "dockermachines", "one-cp"), o{"metadata": o{"name": "one-cp", "namespace": "shop"}, "spec": o{"bootstrapped": true}})
	out := f.succeeds("migrate", "--from", "capd")
	wants(t, out, "Deployment capd-system/capd-controller-manager", "cluster shop/one: its containers are not taken over", "dockermachines shop/one-cp bootstrapped", "clusterctl delete --infrastructure docker",
		"kubectl delete clusters.cluster.x-k8s.io --wait --ignore-not-found --namespace shop first\n", `kubectl delete "$kind" --all`, "--infrastructure docker:VERSION")
	wantsNot(t, out, "capi-system/capi-controller-manager", "Settle first")

	f.put(api(group, "shop", "devclusters", "two"), o{"metadata": o{"name": "two", "namespace": "shop"}, "spec": o{"backend": o{"inMemory": o{}}}})
	f.put(api(group, "shop", "devmachinetemplates", "cp"), o{"metadata": o{"name": "cp", "namespace": "shop"}, "spec": o{"template": o{"spec": o{"backend": o{"docker": o{}}}}}})
	plan := f.plan(2, "--from", "capd")
	if len(plan.SettleFirst) != 2 {
		t.Errorf("%q", plan.SettleFirst)
	}
	wants(t, strings.Join(plan.SettleFirst, "\n"), "devclusters shop/two: it has no backend docker", "shop/cp: write it as one of dockermachinetemplates")
	wants(t, strings.Join(plan.Restarts, "\n"), "cluster shop/two")
}
