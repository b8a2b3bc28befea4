// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	discoveryv1apply "k8s.io/client-go/applyconfigurations/discovery/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/clientcmd"
)

// nameServer answers for Services, as the specification of DNS in Kubernetes
// has it, as far as pods of tests ask: addresses of Services and, where a
// Service has none, of its endpoints. There is no other name: it asks nobody.
type nameServer struct {
	zone     string
	services corelisters.ServiceLister
	slices   discoverylisters.EndpointSliceLister
}

// dnsPort is the name of the Service's two ports for each protocol.
var dnsPort = map[corev1.Protocol]string{corev1.ProtocolUDP: "dns", corev1.ProtocolTCP: "dns-tcp"}

// serveNames runs a name server beside the API server, and the Service kube-dns
// that leads to it.
func (s *settings) serveNames(ctx context.Context) (func() error, error) {
	config, err := clientcmd.BuildConfigFromFlags("", s.path("admin.kubeconfig"))
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	stream, err := net.Listen("tcp", net.JoinHostPort(s.advertise, "0"))
	if err != nil {
		return nil, err
	}
	packets, err := net.ListenPacket("udp", stream.Addr().String())
	if err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	n := &nameServer{
		zone:     "." + s.dnsZone + ".",
		services: factory.Core().V1().Services().Lister(),
		slices:   factory.Discovery().V1().EndpointSlices().Lister(),
	}
	factory.StartWithContext(ctx)
	factory.WaitForCacheSyncWithContext(ctx)
	if err := s.announceNames(ctx, client, stream.Addr().(*net.TCPAddr)); err != nil {
		return nil, err
	}
	go n.serveStream(stream)
	return func() error { return n.servePackets(packets) }, nil
}

// announceNames makes Service and endpoint, or corrects them after a restart.
func (s *settings) announceNames(ctx context.Context, client kubernetes.Interface, address *net.TCPAddr) error {
	const namespace, name = metav1.NamespaceSystem, "kube-dns"
	service := corev1apply.ServiceSpec().WithClusterIP(s.dns)
	slice := discoveryv1apply.EndpointSlice(name, namespace).
		WithLabels(map[string]string{discoveryv1.LabelServiceName: name}).
		WithAddressType(discoveryv1.AddressTypeIPv4).
		WithEndpoints(discoveryv1apply.Endpoint().WithAddresses(address.IP.String()))
	for protocol, port := range dnsPort {
		service.WithPorts(corev1apply.ServicePort().WithName(port).WithProtocol(protocol).WithPort(53))
		slice.WithPorts(discoveryv1apply.EndpointPort().WithName(port).WithProtocol(protocol).WithPort(int32(address.Port)))
	}
	o := metav1.ApplyOptions{FieldManager: "controlplane", Force: true}
	if _, err := client.CoreV1().Services(namespace).Apply(ctx, corev1apply.Service(name, namespace).WithSpec(service), o); err != nil {
		return err
	}
	_, err := client.DiscoveryV1().EndpointSlices(namespace).Apply(ctx, slice, o)
	return err
}

func (n *nameServer) servePackets(conn net.PacketConn) error {
	question := make([]byte, 4096)
	for {
		size, from, err := conn.ReadFrom(question)
		if err != nil {
			return err
		}
		// 1232 bytes fit every path; who wants more asks by TCP.
		if answer, err := n.answer(question[:size], 1232); err == nil {
			conn.WriteTo(answer, from)
		}
	}
}

func (n *nameServer) serveStream(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			for n.exchange(conn) == nil {
			}
		}()
	}
}

// exchange is one question and answer by TCP, each after its length.
func (n *nameServer) exchange(conn net.Conn) error {
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	var size uint16
	if err := binary.Read(conn, binary.BigEndian, &size); err != nil {
		return err
	}
	question := make([]byte, size)
	if _, err := io.ReadFull(conn, question); err != nil {
		return err
	}
	answer, err := n.answer(question, 1<<16-1)
	if err != nil {
		return err
	}
	_, err = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...))
	return err
}

func (n *nameServer) answer(packet []byte, limit int) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(packet); err != nil {
		return nil, err
	}
	if m.Response || len(m.Questions) != 1 {
		return nil, errors.New("not a question")
	}
	q := m.Questions[0]
	reply := dnsmessage.Message{Questions: m.Questions, Header: dnsmessage.Header{
		ID: m.ID, Response: true, Authoritative: true, RecursionDesired: m.RecursionDesired, RecursionAvailable: true,
	}}
	bodies, found := n.lookup(q.Name.String(), q.Type)
	if !found {
		reply.RCode = dnsmessage.RCodeNameError
	}
	for _, b := range bodies {
		reply.Answers = append(reply.Answers, dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 1}, Body: b,
		})
	}
	out, err := reply.Pack()
	if err == nil && len(out) > limit {
		reply.Truncated, reply.Answers = true, nil
		out, err = reply.Pack()
	}
	return out, err
}

// lookup returns SERVICE.NAMESPACE.svc.ZONE, and with one label more in front
// an endpoint by its host name. A name may be there without what was asked for.
func (n *nameServer) lookup(name string, kind dnsmessage.Type) (bodies []dnsmessage.ResourceBody, found bool) {
	rest, ok := strings.CutSuffix(strings.ToLower(name), ".svc"+n.zone)
	parts := strings.Split(rest, ".")
	if !ok || len(parts) < 2 || len(parts) > 3 {
		return nil, false
	}
	host := strings.Join(parts[:len(parts)-2], ".")
	service, err := n.services.Services(parts[len(parts)-1]).Get(parts[len(parts)-2])
	if err != nil {
		return nil, false
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		target, err := dnsmessage.NewName(strings.TrimSuffix(service.Spec.ExternalName, ".") + ".")
		if err != nil {
			return nil, false
		}
		return []dnsmessage.ResourceBody{&dnsmessage.CNAMEResource{CNAME: target}}, true
	}
	addresses := service.Spec.ClusterIPs
	if service.Spec.ClusterIP == corev1.ClusterIPNone || host != "" {
		addresses = n.endpoints(service, host)
	}
	return records(addresses, kind), len(addresses) > 0
}

func (n *nameServer) endpoints(service *corev1.Service, host string) []string {
	slices, err := n.slices.EndpointSlices(service.Namespace).List(labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: service.Name}))
	if err != nil {
		return nil
	}
	var addresses []string
	for _, s := range slices {
		for _, e := range s.Endpoints {
			ready := e.Conditions.Ready == nil || *e.Conditions.Ready || service.Spec.PublishNotReadyAddresses
			if ready && (host == "" || e.Hostname != nil && *e.Hostname == host) {
				addresses = append(addresses, e.Addresses...)
			}
		}
	}
	return addresses
}

func records(addresses []string, kind dnsmessage.Type) []dnsmessage.ResourceBody {
	var bodies []dnsmessage.ResourceBody
	for _, text := range addresses {
		a, err := netip.ParseAddr(text)
		switch {
		case err != nil:
		case kind == dnsmessage.TypeA && a.Is4():
			bodies = append(bodies, &dnsmessage.AResource{A: a.As4()})
		case kind == dnsmessage.TypeAAAA && a.Is6():
			bodies = append(bodies, &dnsmessage.AAAAResource{AAAA: a.As16()})
		}
	}
	return bodies
}
