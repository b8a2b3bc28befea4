// SPDX-License-Identifier: Apache-2.0

// Command kube is every Kubernetes program that the tests need in one file, so that
// the code they share is built and kept once, except for kubectl, which is called
// often. It is the program it is called as, by a link to it or by its first argument.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// programs are made only when they are asked for: their commands register
// flags and metrics that do not bear each other.
var programs = map[string]func(){
	"controlplane":            runControlPlane,
	"etcd":                    func() { etcdmain.Main(os.Args) },
	"kube-apiserver":          func() { run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() { run(controllermanager.NewControllerManagerCommand()) },
	"kube-proxy":              func() { run(proxy.NewProxyCommand()) },
	"kube-scheduler":          func() { run(scheduler.NewSchedulerCommand()) },
	"kubelet":                 func() { run(kubelet.NewKubeletCommand(context.Background())) },
}

func main() {
	if f, ok := programs[filepath.Base(os.Args[0])]; ok {
		f()
		return
	}
	if len(os.Args) > 1 {
		if f, ok := programs[os.Args[1]]; ok {
			os.Args = os.Args[1:]
			f()
			return
		}
	}
	names := strings.Join(slices.Sorted(maps.Keys(programs)), ", ")
	fmt.Fprintf(os.Stderr, "usage: kube PROGRAM [ARGUMENT...], where PROGRAM is one of %s\n", names)
	os.Exit(2)
}

func run(command *cobra.Command) { os.Exit(cli.Run(command)) }
