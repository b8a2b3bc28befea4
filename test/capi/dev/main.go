// SPDX-License-Identifier: Apache-2.0

// Command dev is `make capi-cluster`: a management cluster for developers of
// providers of Cluster API, without root and without a container, until it is
// interrupted. There is an API server and clusterctl; where a cluster has
// kubelets, this program runs the managers that clusterctl installs, as
// processes of this machine:
//
//	capi-dev -program infrastructure-mycloud=bin/manager &
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/outrigger/outrigger/test/capi"
	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/stand"
)

func main() {
	dir := flag.String("dir", "bin/management", "`folder` for kubeconfig, env, bin, clusterctl.yaml and logs")
	programs := map[string]string{}
	flag.Func("program", "`NAME=FILE`: what to run for the provider with that label, such as infrastructure-mycloud=bin/manager; may be repeated", func(text string) error {
		name, file, ok := strings.Cut(text, "=")
		if !ok || name == "" || file == "" {
			return errors.New("want NAME=FILE")
		}
		file, err := filepath.Abs(file)
		programs[name] = file
		return err
	})
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *dir, programs); err != nil {
		fmt.Fprintln(os.Stderr, "management:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir string, programs map[string]string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o700); err != nil {
		return err
	}
	t := stand.NewSession(ctx, "management")
	defer t.Finish()
	k := &keeper{t: t, dir: dir, programs: programs, managers: map[string]*manager{}}
	if !t.Try(func() { k.up() }) {
		return errors.New("it did not start")
	}
	for ctx.Err() == nil {
		t.Try(func() { k.look(ctx) })
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
	return nil
}

// up starts the cluster; the file env comes last, for those who wait for it.
func (k *keeper) up() {
	base := capi.Programs(k.t)
	for name, program := range standard {
		if k.programs[name] == "" {
			k.programs[name] = filepath.Join(base, program)
		}
	}
	fmt.Println("management: starting an API server")
	k.m = capi.Start(k.t, capi.NewRepository(k.t))
	k.certs = filepath.Join(k.m.Dir, "serving")
	k.m.Serving(k.t, k.certs)
	k.write("kubeconfig", 0o600, k.m.KubeconfigFor(k.t, k.m.Server))
	k.write("clusterctl.yaml", 0o600, clusterctlConfig(k.t, base))
	k.write("bin/clusterctl", 0o700, fmt.Sprintf(clusterctlScript, filepath.Join(base, "clusterctl"), k.path("clusterctl.yaml")))
	kubectl := k.path("bin/kubectl")
	os.Remove(kubectl)
	if err := os.Symlink(filepath.Join(cluster.Programs(k.t), "kubectl"), kubectl); err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { os.Remove(kubectl) })
	k.write("env", 0o600, fmt.Sprintf("export KUBECONFIG='%s'\nexport PATH='%s':\"$PATH\"\n", k.path("kubeconfig"), k.path("bin")))
	fmt.Printf(help, k.dir, strings.Join(slices.Sorted(maps.Keys(k.programs)), "\n    "))
}

const help = `management: ready. In another terminal:

    . %[1]s/env
    clusterctl init --core cluster-api --bootstrap kubeadm --control-plane kubeadm

Providers are those of %[1]s/clusterctl.yaml. Managers run for
    %[2]s
with logs and process ids in %[1]s. ^C removes everything.
`

// clusterctlScript keeps to what is on this machine.
const clusterctlScript = `#!/bin/sh
GOPROXY=off CLUSTERCTL_DISABLE_VERSIONCHECK=true exec '%s' --config '%s' "$@"
`

// clusterctlConfig ends with the list of providers, for others to add to.
func clusterctlConfig(t *stand.Session, base string) string {
	var s strings.Builder
	s.WriteString("cert-manager: {externallyProvisioned: true, timeout: 30s}\nproviders:\n")
	for _, p := range [][3]string{
		{"cluster-api", "CoreProvider", "cluster-api/v*/core-components.yaml"},
		{"kubeadm", "BootstrapProvider", "bootstrap-kubeadm/v*/bootstrap-components.yaml"},
		{"kubeadm", "ControlPlaneProvider", "control-plane-kubeadm/v*/control-plane-components.yaml"},
	} {
		found, err := filepath.Glob(filepath.Join(base, "providers", p[2]))
		if err != nil || len(found) != 1 {
			t.Fatalf("%s in %s: found %q, %v", p[2], base, found, err)
		}
		fmt.Fprintf(&s, "- {name: %s, type: %s, url: '%s'}\n", p[0], p[1], found[0])
	}
	return s.String()
}
