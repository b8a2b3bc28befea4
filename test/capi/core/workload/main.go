// SPDX-License-Identifier: Apache-2.0

// Command workload is the inside of simulated machines: Kubernetes clusters
// without a kubelet, which appear when the machines of a cloud in a folder
// (provider/fake) boot. All it knows is what a machine knows, its instance and
// its user-data: whoever brings the wrong user-data gets no Node. It is a
// process of its own with an inventory of its own, so that managers of machines
// can be killed, moved and replaced while their clusters go on.
//
// API server and etcd of each cluster listen at the control plane's endpoint,
// which has to be a port of 127.0.0.1. They are those of Cluster API's in-memory
// provider.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// look is how often it looks whether the cloud has changed.
const look = 50 * time.Millisecond

func main() {
	dir := flag.String("dir", "", "folder of the cloud")
	prefix := flag.String("provider-id", "outrigger://fake/", "what stands before an instance's id in the provider id of its Node, as a cloud controller manager sets it")
	klog.InitFlags(nil)
	flag.Parse()
	ctrl.SetLogger(klog.Background())
	go func() { // the process ends with whoever started it
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	if err := run(ctrl.SetupSignalHandler(), *dir, *prefix); err != nil {
		fmt.Fprintln(os.Stderr, "workload:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir, prefix string) error {
	clusters, err := newClusters(ctx)
	if err != nil {
		return err
	}
	w := &world{folder: folder{dir: dir}, clusters: clusters, prefix: prefix, machines: map[string]*machine{}}
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		if err := w.follow(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
