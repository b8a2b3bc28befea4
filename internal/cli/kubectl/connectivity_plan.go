// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"net/netip"
	"slices"

	"github.com/outrigger/outrigger/internal/netprobe"
)

// Pods of the test. Client and server are in VMs, on different nodes if there are two.
const (
	clientPod   = "client"
	serverPod   = "server"
	ordinaryPod = "ordinary"

	// netLabel is on the namespace, and names each pod.
	netLabel   = "outrigger.dev/connectivity"
	networking = "/apis/networking.k8s.io/v1"
	policyName = "deny-all"
)

var testPods = []string{clientPod, serverPod, ordinaryPod}

// netPlan is one check: a pod runs a probe.
type netPlan struct {
	group, name, from string
	probe             []string
	// fix is what to do if it fails, lacks why it cannot be checked here.
	fix, lacks string
	// before changes the cluster for this check and those after it.
	before func(context.Context) error
}

// checkNames are the groups of the plan.
func checkNames() []string {
	var names []string
	for _, p := range (&netTest{}).plan() {
		if !slices.Contains(names, p.group) {
			names = append(names, p.group)
		}
	}
	return names
}

// plan returns all checks in their order. The policy comes last, since it ends what the others test.
func (n *netTest) plan() []netPlan {
	const (
		tunnel  = "see docs/networking.md: the node must reach the VM by UDP, and the pod network must know the pod's address"
		service = "see that kube-proxy, or what stands for it, runs on the client's node"
		policy  = "see that the network plugin enforces NetworkPolicies, and docs/networking.md"
	)
	ip := func(name string) string { return address(n.ip(name, false)) }
	name := serverPod + "." + n.namespace + ".svc"
	all := []netPlan{
		{group: "pod", name: "pod in a VM to pod in a VM", from: clientPod, probe: []string{netprobe.Echo, ip(serverPod)}, fix: tunnel},
		{group: "pod", name: "pod in a VM to ordinary pod", from: clientPod, probe: []string{netprobe.Echo, ip(ordinaryPod)}, fix: tunnel},
		{group: "pod", name: "ordinary pod to pod in a VM", from: ordinaryPod, probe: []string{netprobe.Echo, ip(serverPod)}, fix: tunnel},
		{group: "service", name: "pod in a VM to Service", from: clientPod, probe: []string{netprobe.Echo, address(n.service)}, fix: service},
		{group: "service", name: "ordinary pod to Service of a pod in a VM", from: ordinaryPod, probe: []string{netprobe.Echo, address(n.service)}, fix: service},
		{group: "dns", name: "DNS in a VM", from: clientPod, probe: []string{netprobe.Lookup, name}, fix: "see that the cluster's DNS runs, and that UDP port 53 is open to it"},
		{group: "outside", name: "pod in a VM to the outside", from: clientPod, probe: []string{netprobe.Connect, n.options.outside}, fix: "see the masquerading of pod addresses and the cloud's gateway"},
		{group: "ipv6", name: "pod in a VM to pod in a VM, IPv6", from: clientPod, probe: []string{netprobe.Echo, address(n.ip(serverPod, true))}, fix: tunnel},
		{group: "mtu", name: "largest packet to a pod in a VM", from: clientPod, probe: []string{netprobe.MTU, ip(serverPod)}, fix: "lower the MTU of the pod network, or raise that of the underlay: docs/networking.md"},
		{group: "throughput", name: "throughput to a pod in a VM", from: clientPod, probe: []string{netprobe.Throughput, ip(serverPod)}, fix: tunnel},
		{group: "policy", name: "NetworkPolicy keeps a pod in a VM out", from: clientPod, probe: []string{netprobe.Refused, ip(serverPod)}, fix: policy, before: n.deny},
		{group: "policy", name: "NetworkPolicy keeps an ordinary pod out", from: ordinaryPod, probe: []string{netprobe.Refused, ip(serverPod)}, fix: policy},
		{group: "policy", name: "without it the server is back", from: clientPod, probe: []string{netprobe.Echo, ip(serverPod)}, fix: policy, before: n.allow},
	}
	for i := range all {
		all[i].lacks = n.lacks(&all[i])
	}
	return all
}

// lacks returns why a check is impossible here.
func (n *netTest) lacks(p *netPlan) string {
	switch {
	case n.pods[p.from] == nil || n.pods[serverPod] == nil || p.probe[1] == address(""):
		if p.group == "ipv6" && n.pods[serverPod] != nil {
			return "pods have no IPv6 address"
		}
		return "a pod that it needs does not run"
	case p.group == "outside" && n.options.outside == "":
		return "give --outside HOST:PORT"
	}
	return ""
}

// ip returns an address of a pod: the first one, or its IPv6 one.
func (n *netTest) ip(name string, six bool) string {
	p := n.pods[name]
	if p == nil {
		return ""
	}
	if !six {
		return p.Status.PodIP
	}
	for _, ip := range p.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil && a.Is6() {
			return ip.IP
		}
	}
	return ""
}

func (n *netTest) deny(ctx context.Context) error {
	return n.c.create(ctx, api(networking, n.namespace, "networkpolicies"), fields{
		"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": fields{"name": policyName},
		"spec": fields{"podSelector": fields{"matchLabels": fields{netLabel: serverPod}}, "policyTypes": []string{"Ingress"}},
	})
}

func (n *netTest) allow(ctx context.Context) error {
	return n.c.remove(ctx, api(networking, n.namespace, "networkpolicies", policyName))
}

// fields are those of an object as JSON.
type fields = map[string]any

// placed is an object and the collection that it is created in.
type placed struct {
	at     string
	object fields
}

// objects returns what the test makes, in this order. The namespace admits only restricted pods, so that it may be made
// where policies of the cluster admit no others.
func (n *netTest) objects() []placed {
	all := []placed{
		{core("", "namespaces"), fields{"apiVersion": "v1", "kind": "Namespace", "metadata": fields{"name": n.namespace, "labels": fields{
			netLabel: "test", "app.kubernetes.io/part-of": "outrigger", "pod-security.kubernetes.io/enforce": "restricted",
		}}}},
		{core(n.namespace, "services"), fields{"apiVersion": "v1", "kind": "Service", "metadata": fields{"name": serverPod},
			"spec": fields{"selector": fields{netLabel: serverPod}, "ports": []any{fields{"port": 8080, "targetPort": 8080}}}}},
	}
	for _, name := range testPods {
		class := n.options.runtimeClass
		if name == ordinaryPod {
			class = ""
		}
		all = append(all, placed{core(n.namespace, "pods"), n.pod(name, class)})
	}
	return all
}

func (n *netTest) pod(name, class string) fields {
	others := fields{"topologyKey": "kubernetes.io/hostname", "labelSelector": fields{"matchExpressions": []any{fields{"key": netLabel, "operator": "Exists"}}}}
	spec := fields{
		"automountServiceAccountToken": false, "enableServiceLinks": false, "terminationGracePeriodSeconds": 1, "restartPolicy": "Always",
		"affinity": fields{"podAntiAffinity": fields{"preferredDuringSchedulingIgnoredDuringExecution": []any{fields{"weight": 100, "podAffinityTerm": others}}}},
		"containers": []any{fields{
			"name": probeContainer, "image": n.options.image, "imagePullPolicy": "IfNotPresent",
			"command": append(slices.Clone(netprobe.Command), netprobe.Serve),
			"securityContext": fields{
				"allowPrivilegeEscalation": false, "runAsNonRoot": true, "runAsUser": 65532, "readOnlyRootFilesystem": true,
				"capabilities": fields{"drop": []string{"ALL"}}, "seccompProfile": fields{"type": "RuntimeDefault"},
			},
		}},
	}
	if class != "" {
		spec["runtimeClassName"] = class
	}
	return fields{"apiVersion": "v1", "kind": "Pod", "metadata": fields{"name": name, "labels": fields{netLabel: name}}, "spec": spec}
}
