// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	memory "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// create makes what is not there.
func create(ctx context.Context, c memory.Client, objects ...client.Object) error {
	for _, o := range objects {
		if err := c.Create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

func remove(ctx context.Context, c memory.Client, objects ...client.Object) error {
	for _, o := range objects {
		if err := c.Delete(ctx, o); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// objectsOf are those that are on a node, and the node.
func objectsOf(name string) []client.Object {
	objects := []client.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}}
	for _, part := range []string{"etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager"} {
		objects = append(objects, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: part + "-" + name}})
	}
	return objects
}

func node(b *boot, version string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: b.node}}
	n.Spec.ProviderID = b.providerID
	n.Status.NodeInfo.KubeletVersion = cmp.Or(b.kubelet, version)
	n.Status.Conditions = nodeConditions(true)
	if b.controlPlane {
		const role = "node-role.kubernetes.io/control-plane"
		n.Labels = map[string]string{role: ""}
		n.Spec.Taints = []corev1.Taint{{Key: role, Effect: corev1.TaintEffectNoSchedule}}
	}
	return n
}

// nodeConditions are those of a kubelet that runs, or of one not heard of for
// a while.
func nodeConditions(running bool) []corev1.NodeCondition {
	now := metav1.Now()
	list := []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"},
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID"},
	}
	for i := range list {
		list[i].LastTransitionTime = now
		if !running {
			list[i].Status, list[i].Reason = corev1.ConditionUnknown, "NodeStatusUnknown"
		}
	}
	return list
}

func (c *clusters) setReady(ctx context.Context, b *boot, ready bool) error {
	n := &corev1.Node{}
	err := c.client(b.endpoint).Get(ctx, client.ObjectKey{Name: b.node}, n)
	if err != nil {
		return client.IgnoreNotFound(err) // deleted by who manages the machine
	}
	n = n.DeepCopy()
	n.Status.Conditions = nodeConditions(ready)
	return c.client(b.endpoint).Update(ctx, n)
}

func staticPod(part, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: part + "-" + node,
			Labels: map[string]string{"component": part, "tier": "control-plane"},
		},
		Spec: corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{
			Phase:      corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
}

// kubeadmObjects are those of a new cluster that the kubeadm control plane
// provider reads.
func kubeadmObjects(version string) []client.Object {
	system := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name}
	}
	const nodes = "kubeadm:get-nodes"
	objects := []client.Object{
		&rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: nodes},
			Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"nodes"}}},
		},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: nodes},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: nodes},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, Name: "system:bootstrappers:kubeadm:default-node-token"}},
		},
		&corev1.ConfigMap{ObjectMeta: system("kubeadm-config"), Data: map[string]string{"ClusterConfiguration": ""}},
		&corev1.ConfigMap{ObjectMeta: system("coredns"), Data: map[string]string{"Corefile": ".:53 {\n}\n"}},
		&appsv1.Deployment{ObjectMeta: system("coredns"), Spec: appsv1.DeploymentSpec{Template: pod("coredns", "registry.k8s.io/coredns/coredns:v1.14.2")}},
		&appsv1.DaemonSet{ObjectMeta: system("kube-proxy"), Spec: appsv1.DaemonSetSpec{Template: pod("kube-proxy", "registry.k8s.io/kube-proxy:"+version)}},
	}
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespacePublic, metav1.NamespaceSystem} {
		objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{corev1.LabelMetadataName: name},
		}})
	}
	return objects
}

func pod(container, image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: container, Image: image}}}}
}
