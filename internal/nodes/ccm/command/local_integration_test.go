// SPDX-License-Identifier: Apache-2.0

//go:build integration

package command

import (
	"io"
	"net"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/test/cluster"
)

// balancesHere is --load-balancer-address, which asks nothing of a provider: the
// manager takes the connections itself, and another takes them over.
func balancesHere(l *lab) {
	const nodePort = 31099
	backend, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(nodePort)))
	if err != nil {
		l.Fatal(err)
	}
	defer backend.Close()
	go func() {
		for {
			conn, err := backend.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "edge") // who does not read it says so
			conn.Close()
		}
	}()
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: v1.NodeSpec{ProviderID: "another://edge"}}
	if _, err := l.client.CoreV1().Nodes().Create(l.Context(), node, metav1.CreateOptions{}); err != nil {
		l.Fatal(err)
	}
	address := []byte(`{"status":{"addresses":[{"type":"InternalIP","address":"127.0.0.1"}]}}`)
	if _, err := l.client.CoreV1().Nodes().Patch(l.Context(), "edge", types.StrategicMergePatchType, address, metav1.PatchOptions{}, "status"); err != nil {
		l.Fatal(err)
	}
	l.ready("edge", v1.ConditionTrue)
	port := cluster.HoldPort(l.T)
	number, err := strconv.Atoi(port)
	if err != nil {
		l.Fatal(err)
	}
	services := l.client.CoreV1().Services("default")
	_, err = services.Create(l.Context(), &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "here"},
		Spec:       v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer, Ports: []v1.ServicePort{{Port: int32(number), NodePort: nodePort}}},
	}, metav1.CreateOptions{})
	if err != nil {
		l.Fatal(err)
	}
	s := newSky(l)
	for range 2 { // as after a restart of the process, or of its machine
		kill := s.manager("--load-balancer-address=127.0.0.1")
		l.until("connections come through", func() bool { return says(port) == "edge" })
		l.until("the Service has the address", func() bool {
			s, err := services.Get(l.Context(), "here", metav1.GetOptions{})
			return err == nil && len(s.Status.LoadBalancer.Ingress) == 1 && s.Status.LoadBalancer.Ingress[0].IP == "127.0.0.1"
		})
		kill()
		if got := says(port); got != "" {
			l.Errorf("somebody says %q when the manager has ended", got)
		}
	}
	kill := s.manager("--load-balancer-address=127.0.0.1")
	defer kill()
	l.until("connections come through", func() bool { return says(port) == "edge" })
	if err := services.Delete(l.Context(), "here", metav1.DeleteOptions{}); err != nil {
		l.Fatal(err)
	}
	l.until("the port is free", func() bool { return says(port) == "" })
	if asked := len(s.cloud.Balancers()); asked > 0 {
		l.Errorf("the provider has made %d load balancers", asked)
	}
}

// says returns what is heard at a port, and nothing when nobody is there.
func says(port string) string {
	conn, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", port), 5*time.Second)
	if err != nil {
		return ""
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(5 * time.Second))
	text, _ := io.ReadAll(conn) // what came before an error counts
	return string(text)
}
