// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/embed"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/klog/v2"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	apiserveroptions "k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	controllermanageroptions "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	scheduleroptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"
)

// settings are the flags of the control plane. Its certificates and the admin's
// kubeconfig are in dir before it starts.
type settings struct {
	dir, listen, advertise, serviceCIDR string
	// dns is the address of the Service of the name server; without one there
	// is no name server.
	dns, dnsZone string

	apiserver, controllerManager, scheduler repeated
}

// repeated is a flag that may be given more than once.
type repeated []string

func (r *repeated) String() string         { return fmt.Sprint([]string(*r)) }
func (r *repeated) Set(value string) error { *r = append(*r, value); return nil }

func (s *settings) path(name string) string { return filepath.Join(s.dir, name) }

// runControlPlane runs etcd, API server, controller manager and scheduler in
// this process until one of them fails, a signal comes, or standard input ends.
func runControlPlane() {
	var s settings
	f := flag.NewFlagSet("controlplane", flag.ExitOnError)
	f.StringVar(&s.dir, "dir", "", "folder with pki/ and admin.kubeconfig; etcd's data is kept in it")
	f.StringVar(&s.listen, "listen", "127.0.0.1:6443", "address and port of the API server")
	f.StringVar(&s.advertise, "advertise", "127.0.0.1", "address at which pods reach the API server")
	f.StringVar(&s.serviceCIDR, "service-cidr", "10.96.0.0/16", "range of the addresses of Services")
	f.StringVar(&s.dns, "dns", "", "address of the Service that answers names; nodes are to reach the advertised address")
	f.StringVar(&s.dnsZone, "dns-zone", "cluster.local", "zone of these names")
	f.Var(&s.apiserver, "apiserver", "further argument for kube-apiserver; repeatable")
	f.Var(&s.controllerManager, "controller-manager", "further argument for kube-controller-manager; repeatable")
	f.Var(&s.scheduler, "scheduler", "further argument for kube-scheduler; repeatable")
	f.Parse(os.Args[1:])
	go endWithInput()
	if err := s.run(genericapiserver.SetupSignalContext()); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1)
	}
}

// endWithInput ends the process when whoever started it is gone.
func endWithInput() {
	io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

func (s *settings) run(ctx context.Context) error {
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	logErrors()
	store, err := s.startEtcd(ctx)
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	defer store.Close()
	ended := make(chan error, 4)
	for _, p := range s.parts() {
		serve, err := p.start(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		go func() { ended <- fmt.Errorf("%s ended: %w", p.name, serve()) }()
		if p.name == "kube-apiserver" {
			// The others give up when they find no API server.
			if err := s.awaitAPI(ctx, ended); err != nil {
				return err
			}
		}
	}
	if err = <-ended; ctx.Err() != nil {
		return nil
	}
	return err
}

// logErrors leaves all else out of the log: hundreds of lines at each start
// would drown them.
func logErrors() {
	f := flag.NewFlagSet("", flag.PanicOnError)
	klog.InitFlags(f)
	f.Parse([]string{"-logtostderr=false", "-stderrthreshold=ERROR", "-log_file=/dev/null"})
}

// part is a program of the control plane: start prepares it and answers what
// runs it.
type part struct {
	name  string
	start func(context.Context) (func() error, error)
}

func (s *settings) parts() []part {
	parts := []part{
		{"kube-apiserver", s.apiServer},
		{"kube-controller-manager", s.controllers},
		{"kube-scheduler", s.schedule},
	}
	if s.dns != "" {
		parts = append(parts, part{"name server", s.serveNames})
	}
	return parts
}

// startEtcd serves on a socket in the folder: no port to find. A single member
// never dials its peer address.
func (s *settings) startEtcd(ctx context.Context) (*embed.Etcd, error) {
	anyPort := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	c := embed.NewConfig()
	c.Dir = s.path("etcd")
	c.LogLevel = "error"
	c.UnsafeNoFsync = true
	c.ListenClientUrls = []url.URL{{Scheme: "unix", Path: s.path("etcd.sock")}}
	c.AdvertiseClientUrls, c.ListenPeerUrls, c.AdvertisePeerUrls = anyPort, anyPort, anyPort
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	store, err := embed.StartEtcd(c)
	if err != nil {
		return nil, err
	}
	select {
	case <-store.Server.ReadyNotify():
		return store, nil
	case err = <-store.Err():
	case <-ctx.Done():
		err = ctx.Err()
	}
	store.Close()
	return nil, err
}

func (s *settings) apiServer(ctx context.Context) (func() error, error) {
	host, port, err := net.SplitHostPort(s.listen)
	if err != nil {
		return nil, fmt.Errorf("-listen: %w", err)
	}
	// Only with an address that pods reach does the Service kubernetes get an
	// endpoint.
	reconciler := "lease"
	if net.ParseIP(s.advertise).IsLoopback() {
		reconciler = "none"
	}
	o := apiserveroptions.NewServerRunOptions()
	err = parse(o.Flags(), append([]string{
		"--etcd-servers=unix://" + s.path("etcd.sock"),
		"--bind-address=" + host, "--secure-port=" + port,
		"--advertise-address=" + s.advertise,
		"--endpoint-reconciler-type=" + reconciler,
		"--tls-cert-file=" + s.path("pki/apiserver.crt"),
		"--tls-private-key-file=" + s.path("pki/apiserver.key"),
		"--client-ca-file=" + s.path("pki/ca.crt"),
		"--kubelet-client-certificate=" + s.path("pki/kubelet-client.crt"),
		"--kubelet-client-key=" + s.path("pki/kubelet-client.key"),
		// Nobody answers for the names of nodes.
		"--kubelet-preferred-address-types=InternalIP",
		"--service-cluster-ip-range=" + s.serviceCIDR,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + s.path("pki/sa.key"),
		"--service-account-signing-key-file=" + s.path("pki/sa.key"),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--anonymous-auth=true",
	}, s.apiserver...))
	if err != nil {
		return nil, err
	}
	if err := o.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return nil, err
	}
	complete, err := o.Complete(ctx)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(complete.Validate()...); err != nil {
		return nil, err
	}
	return func() error { return apiserver.Run(ctx, complete) }, nil
}

// clientFlags are those of what works with the API server: alone, so without
// election, and for tests, so without the wait that limits on calls mean.
func (s *settings) clientFlags(more ...string) []string {
	return append([]string{
		"--kubeconfig=" + s.path("admin.kubeconfig"),
		"--leader-elect=false",
		"--secure-port=0",
		"--kube-api-qps=" + strconv.Itoa(300),
		"--kube-api-burst=" + strconv.Itoa(600),
	}, more...)
}

func (s *settings) controllers(ctx context.Context) (func() error, error) {
	o, err := controllermanageroptions.NewKubeControllerManagerOptions()
	if err != nil {
		return nil, err
	}
	known, off, aliases := controllermanager.KnownControllers(), controllermanager.ControllersDisabledByDefault(), controllermanager.ControllerAliases()
	err = parse(o.Flags(known, off, aliases), append(s.clientFlags(
		"--root-ca-file="+s.path("pki/ca.crt"),
		"--cluster-signing-cert-file="+s.path("pki/ca.crt"),
		"--cluster-signing-key-file="+s.path("pki/ca.key"),
		"--service-account-private-key-file="+s.path("pki/sa.key"),
	), s.controllerManager...))
	if err != nil {
		return nil, err
	}
	c, err := o.Config(ctx, known, off, aliases)
	if err != nil {
		return nil, err
	}
	return func() error { return controllermanager.Run(ctx, c.Complete()) }, nil
}

func (s *settings) schedule(ctx context.Context) (func() error, error) {
	o := scheduleroptions.NewOptions()
	if err := parse(*o.Flags, append(s.clientFlags("--authentication-skip-lookup"), s.scheduler...)); err != nil {
		return nil, err
	}
	config, sched, err := scheduler.Setup(ctx, o)
	if err != nil {
		return nil, err
	}
	return func() error { return scheduler.Run(ctx, config, sched) }, nil
}

func parse(sets cliflag.NamedFlagSets, args []string) error {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, set := range sets.FlagSets {
		all.AddFlagSet(set)
	}
	return all.Parse(args)
}

// awaitAPI waits until the API server says that it is ready.
func (s *settings) awaitAPI(ctx context.Context, ended <-chan error) error {
	config, err := clientcmd.BuildConfigFromFlags("", s.path("admin.kubeconfig"))
	if err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	for {
		if r, err := client.Get(config.Host + "/readyz"); err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}
