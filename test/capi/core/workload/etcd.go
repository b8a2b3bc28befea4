// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudv1 "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/cloud/api/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// etcdMembers are the pods of members that nobody has removed. The server keeps
// what etcd knows of a member in annotations of its pod.
func (c *clusters) etcdMembers(ctx context.Context, endpoint string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := c.client(endpoint).List(ctx, &pods, client.InNamespace(metav1.NamespaceSystem), client.MatchingLabels{"component": "etcd", "tier": "control-plane"})
	var members []corev1.Pod
	for _, p := range pods.Items {
		if _, removed := p.Annotations[cloudv1.EtcdMemberRemoved]; !removed {
			members = append(members, p)
		}
	}
	return members, err
}

// addEtcd makes the pod of a member.
func (c *clusters) addEtcd(ctx context.Context, b *boot) error {
	members, err := c.etcdMembers(ctx, b.endpoint)
	if err != nil {
		return err
	}
	p := staticPod("etcd", b.node)
	p.Annotations = map[string]string{cloudv1.EtcdMemberIDAnnotationName: number(), cloudv1.EtcdClusterIDAnnotationName: number()}
	if len(members) > 0 {
		p.Annotations[cloudv1.EtcdClusterIDAnnotationName] = members[0].Annotations[cloudv1.EtcdClusterIDAnnotationName]
	}
	if err := create(ctx, c.client(b.endpoint), p); err != nil {
		return err
	}
	return c.elect(ctx, b.endpoint)
}

func number() string { return fmt.Sprint(1 + rand.Uint32N(1<<31-1)) }

// elect makes a member the leader if there is none.
func (c *clusters) elect(ctx context.Context, endpoint string) error {
	members, err := c.etcdMembers(ctx, endpoint)
	if err != nil || len(members) == 0 {
		return err
	}
	for _, p := range members {
		if p.Annotations[cloudv1.EtcdLeaderFromAnnotationName] != "" {
			return nil
		}
	}
	leader := members[0].DeepCopy()
	leader.Annotations[cloudv1.EtcdLeaderFromAnnotationName] = time.Now().Format(time.RFC3339)
	return c.client(endpoint).Update(ctx, leader)
}
