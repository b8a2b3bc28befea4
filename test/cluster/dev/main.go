// SPDX-License-Identifier: Apache-2.0

// Command dev is `make cluster`: a cluster of one node for a developer, in
// namespaces of its own, until it is interrupted.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/testns"
)

// socketVar tells the process in the namespaces where to take connections for
// the API server: a unix socket is the one door between network namespaces.
const socketVar = "OUTRIGGER_CLUSTER_SOCKET"

func main() {
	dir := flag.String("dir", "bin/cluster", "folder to write kubeconfig and the script kubectl into")
	flag.Parse()
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "cluster: namespaces and mounts need root; run: sudo -E make cluster")
		os.Exit(1)
	}
	if !testns.Inside() && os.Getenv(socketVar) == "" {
		if err := outside(*dir); err != nil {
			fmt.Fprintln(os.Stderr, "cluster:", err)
			os.Exit(1)
		}
	}
	os.Exit(testns.Run(func() int { return inside(*dir) }))
}

// outside listens on the machine's loopback address for kubectl.
func outside(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	socket := filepath.Join(dir, "api.sock")
	os.Remove(socket) // of a cluster that was killed
	os.Setenv(socketVar, socket)
	os.Setenv(serverVar, "https://"+l.Addr().String())
	go forward(l, "unix", socket)
	return nil
}

// serverVar is the API server's URL on the machine.
const serverVar = "OUTRIGGER_CLUSTER_SERVER"

func inside(dir string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	t := stand.NewSession(ctx, "cluster")
	defer t.Finish()
	if !t.Try(func() { up(t, dir) }) {
		return 1
	}
	<-ctx.Done()
	fmt.Println("\nremoving the cluster")
	return 0
}

func up(t *stand.Session, dir string) {
	fmt.Println("cluster: starting kube-apiserver, controllers, containerd, kubelet, kube-proxy and Outrigger")
	c := cluster.StartControlPlane(t, cluster.ControlPlaneOptions{})
	r := &cluster.Registry{}
	r.Start(t, c)
	n := cluster.StartNode(t, c, cluster.OutriggerNode(t, cluster.NodeOptions{Mirrors: map[string]string{r.Host: r.URL()}}))
	startOutrigger(t, c, n)
	pod := examplePod(r.Push(t, "tools:1", cluster.Tools(t).Image))
	relay := r.Push(t, "agent-relay:1", cluster.Relay(t))
	f := &folder{t: t, dir: filepath.Dir(os.Getenv(socketVar))}
	t.Cleanup(f.remove)
	l, err := net.Listen("unix", f.path("api.sock"))
	if err != nil {
		t.Fatal(err)
	}
	go forward(l, "tcp", c.Address+":"+c.Port())
	f.write("kubeconfig", 0o600, c.KubeconfigFor(t, os.Getenv(serverVar)))
	f.write("kubectl", 0o700, fmt.Sprintf(kubectlScript, f.path("kubeconfig"), filepath.Join(cluster.Programs(t), "kubectl")))
	f.write("node", 0o700, fmt.Sprintf(nodeScript, n.Name, n.MountNamespace()))
	f.write("hello.yaml", 0o600, pod)
	fmt.Printf(help, n.Name, dir, r.Host, n.Dir, c.Log, relay)
}

const kubectlScript = `#!/bin/sh
export KUBECONFIG='%s'
exec '%s' "$@"
`

// nodeScript finds the node by its mount namespace: process ids are others in
// there.
const nodeScript = `#!/bin/sh
# Runs a command, or a shell, on %[1]s.
for p in /proc/[0-9]*; do
  [ "$(readlink "$p/ns/mnt")" = '%[2]s' ] && exec nsenter --target "${p#/proc/}" --mount --net --uts --ipc --pid -- "${@:-/bin/sh}"
done
echo "%[1]s is not running" >&2
exit 1
`

const help = `
Node %[1]s is Ready. In another terminal:

  %[2]s/kubectl apply -f %[2]s/hello.yaml    # a pod in its own VM
  %[2]s/kubectl wait --for=condition=Ready pod/hello
  %[2]s/kubectl logs hello
  %[2]s/kubectl get peerpods,events          # its VM, and how it came about
  %[2]s/node ip addr                         # a command on the node
  export KUBECONFIG=%[2]s/kubeconfig         # for other clients
  bin/kubectl-outrigger status               # Outrigger's programs run outside of pods here, which it warns of
  bin/kubectl-outrigger connectivity test --skip policy --image %[6]s # the network of this cluster enforces no policies

Pods without a RuntimeClass run on the node itself. The image of the example,
%[3]s/tools:1, has busybox; nothing can be pulled from outside.
Logs are in %[4]s/log and %[5]s.
^C removes everything.
`

// forward connects who comes to l with an address.
func forward(l net.Listener, network, address string) {
	for {
		from, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer from.Close()
			to, err := net.Dial(network, address)
			if err != nil {
				return
			}
			defer to.Close()
			go func() { io.Copy(to, from); closeWrite(to) }()
			io.Copy(from, to)
		}()
	}
}

func closeWrite(c net.Conn) {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
}
