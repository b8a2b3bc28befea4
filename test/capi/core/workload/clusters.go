// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	memory "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/runtime"
	"sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/server"
	"sigs.k8s.io/cluster-api/util/certs"
)

// clusters are Kubernetes clusters by the endpoint of their API server.
type clusters struct {
	manager memory.Manager
	mux     *server.WorkloadClustersMux
	// members are the nodes of the control plane of each cluster.
	members map[string]sets.Set[string]
	// version is that of the machine that began the cluster.
	version map[string]string
}

func newClusters(ctx context.Context) (*clusters, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, rbacv1.AddToScheme, storagev1.AddToScheme,
		apiextensionsv1.AddToScheme, policyv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	manager := memory.NewManager(scheme)
	if err := manager.Start(ctx); err != nil {
		return nil, err
	}
	mux, err := server.NewWorkloadClustersMux(manager, "127.0.0.1", server.CustomPorts{MinPort: 1, MaxPort: 65535})
	if err != nil {
		return nil, err
	}
	if err := withStatus(mux); err != nil {
		return nil, err
	}
	return &clusters{manager: manager, mux: mux, members: map[string]sets.Set[string]{}, version: map[string]string{}}, nil
}

func (c *clusters) client(endpoint string) memory.Client {
	return c.manager.GetResourceGroup(endpoint).GetClient()
}

// join makes the node of a machine that boots, and of one of the control plane
// API server and etcd member.
func (c *clusters) join(ctx context.Context, b *boot) error {
	if b.initialize {
		if err := c.begin(ctx, b); err != nil {
			return err
		}
	}
	if c.members[b.endpoint] == nil {
		return fmt.Errorf("connection to %s refused: the cluster has no control plane yet", b.endpoint)
	}
	if err := create(ctx, c.client(b.endpoint), node(b, c.version[b.endpoint])); err != nil {
		return err
	}
	if !b.controlPlane {
		return nil
	}
	return c.joinControlPlane(ctx, b)
}

// begin is kubeadm init. The cluster exists from now on.
func (c *clusters) begin(ctx context.Context, b *boot) error {
	if c.members[b.endpoint] != nil {
		return nil
	}
	host, text, err := net.SplitHostPort(b.endpoint)
	if err != nil {
		return fmt.Errorf("endpoint of the control plane: %w", err)
	}
	port, err := strconv.Atoi(text)
	if err != nil || host != "127.0.0.1" {
		return fmt.Errorf("endpoint of the control plane %q is not a port of 127.0.0.1", b.endpoint)
	}
	c.manager.AddResourceGroup(b.endpoint)
	if _, err := c.mux.InitWorkloadClusterListener(b.endpoint, int32(port)); err != nil {
		return err
	}
	if err := c.mux.RegisterResourceGroup(b.endpoint, b.endpoint); err != nil {
		return err
	}
	if err := create(ctx, c.client(b.endpoint), kubeadmObjects(b.version)...); err != nil {
		return err
	}
	c.members[b.endpoint], c.version[b.endpoint] = sets.New[string](), b.version
	return nil
}

func (c *clusters) joinControlPlane(ctx context.Context, b *boot) error {
	if err := c.addEtcd(ctx, b); err != nil {
		return err
	}
	ca, key, err := b.authority("/etc/kubernetes/pki/etcd/ca")
	if err != nil {
		return err
	}
	if err := c.mux.AddEtcdMember(b.endpoint, "etcd-"+b.node, ca, key); err != nil {
		return err
	}
	for _, name := range []string{"kube-apiserver", "kube-scheduler", "kube-controller-manager"} {
		if err := create(ctx, c.client(b.endpoint), staticPod(name, b.node)); err != nil {
			return err
		}
	}
	if ca, key, err = b.authority("/etc/kubernetes/pki/ca"); err != nil {
		return err
	}
	if err := c.mux.AddAPIServer(b.endpoint, "kube-apiserver-"+b.node, ca, key); err != nil {
		return err
	}
	c.members[b.endpoint].Insert(b.node)
	return nil
}

// authority reads certificate and key from the files of user-data.
func (b *boot) authority(path string) (*x509.Certificate, *rsa.PrivateKey, error) {
	cert, err := certs.DecodeCertPEM([]byte(b.files[path+".crt"]))
	if err != nil {
		return nil, nil, fmt.Errorf("%s.crt of user-data: %w", path, err)
	}
	key, err := certs.DecodePrivateKeyPEM([]byte(b.files[path+".key"]))
	if err != nil {
		return nil, nil, fmt.Errorf("%s.key of user-data: %w", path, err)
	}
	private, ok := key.(*rsa.PrivateKey)
	if !ok || cert == nil {
		return nil, nil, errors.New(path + ": user-data brings no certificate with an RSA key")
	}
	return cert, private, nil
}

// leave is the end of a machine: what was on it is gone. The last one of the
// control plane takes the cluster along.
func (c *clusters) leave(ctx context.Context, b *boot) error {
	members := c.members[b.endpoint]
	if members == nil {
		return nil
	}
	if err := remove(ctx, c.client(b.endpoint), objectsOf(b.node)...); err != nil {
		return err
	}
	if !members.Has(b.node) {
		return nil
	}
	if members.Len() == 1 {
		return c.end(b.endpoint)
	}
	if err := c.mux.DeleteEtcdMember(b.endpoint, "etcd-"+b.node); err != nil {
		return err
	}
	if err := c.mux.DeleteAPIServer(b.endpoint, "kube-apiserver-"+b.node); err != nil {
		return err
	}
	members.Delete(b.node)
	return c.elect(ctx, b.endpoint)
}

func (c *clusters) end(endpoint string) error {
	if err := c.mux.DeleteWorkloadClusterListener(endpoint); err != nil {
		return err
	}
	c.manager.DeleteResourceGroup(endpoint)
	delete(c.members, endpoint)
	delete(c.version, endpoint)
	return nil
}
