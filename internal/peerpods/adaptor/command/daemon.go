// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"time"

	"github.com/containerd/ttrpc"

	"github.com/outrigger/outrigger/internal/keybroker"
	"github.com/outrigger/outrigger/internal/peerpods/adaptor"
	"github.com/outrigger/outrigger/internal/peerpods/adaptor/metrics"
	"github.com/outrigger/outrigger/internal/peerpods/adaptor/tracing"
	"github.com/outrigger/outrigger/internal/peerpods/podnetwork"
	"github.com/outrigger/outrigger/internal/peerpods/podtls"
	"github.com/outrigger/outrigger/internal/peerpods/relay"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/internal/version"
	"github.com/outrigger/outrigger/provider"
)

// shutdownGrace is how long running calls and removals may take to end when
// the adaptor shuts down; what is left then is finished by the next process.
const shutdownGrace = 5 * time.Second

// daemon is the running adaptor.
type daemon struct {
	cfg      *settings
	name     string
	provider provider.Provider
	log      *slog.Logger
	getenv   func(string) string
	hook     func(adaptor.Point)
	metrics  *metrics.Metrics
}

// run serves until ctx ends.
func (d *daemon) run(ctx context.Context) error {
	d.metrics = metrics.New(d.name)
	d.provider = d.metrics.Provider(d.provider)
	opts, err := d.options()
	if err != nil {
		return err
	}
	if err := d.verify(ctx); err != nil {
		return err
	}
	d.logConfig()
	probe, err := startProbe(d.cfg.ProbeAddress, d.cfg.ProbePort, d.metrics.Handler())
	if err != nil {
		return err
	}
	defer probe.close(context.Background())
	socket, err := listen(d.cfg.Socket)
	if err != nil {
		return err
	}
	defer socket.remove()
	link, err := d.relayLink(ctx)
	if err != nil {
		return err
	}
	defer link.close()
	opts.Relay = link
	sendTraces, err := d.traces(ctx, &opts)
	if err != nil {
		return err
	}
	defer sendTraces()
	kube, err := d.joinCluster(ctx, &opts)
	if err != nil {
		return err
	}
	if kube == nil && opts.ClusterID == "" {
		d.log.Warn("without -cluster-id (CLUSTER_ID) instances that are not on record here are never deleted")
	}
	service, err := d.recover(ctx, opts)
	if err != nil {
		return err
	}
	d.metrics.Watch(service)
	defer kube.run()()
	return errors.Join(d.serve(ctx, service, socket, probe), d.close(service))
}

// recover makes the service and takes over what earlier processes left.
func (d *daemon) recover(ctx context.Context, opts adaptor.Options) (*adaptor.Service, error) {
	service, err := adaptor.New(opts)
	if err != nil {
		return nil, err
	}
	if err := service.Recover(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("take over what an earlier run left: %w", err), d.close(service))
	}
	return service, nil
}

// serve serves shims until ctx ends. Running calls are ended by the service, so
// that each of them gets an answer.
func (d *daemon) serve(ctx context.Context, service *adaptor.Service, socket net.Listener, probe *probe) error {
	server, err := ttrpc.NewServer()
	if err != nil {
		return err
	}
	defer server.Close()
	service.Register(server)
	go service.Run(ctx)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(context.Background(), socket) }()
	probe.set(true)
	d.reportState("READY=1")
	d.log.Info("server started", "socket", d.cfg.Socket)
	select {
	case err := <-failed:
		return fmt.Errorf("serve %s: %w", d.cfg.Socket, err)
	case <-ctx.Done():
	}
	probe.set(false)
	d.reportState("STOPPING=1")
	d.log.Info("shutting down; sandboxes and the agent relay stay")
	err = errors.Join(socket.Close(), d.close(service))
	answering, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	server.Shutdown(answering) // it fails only if a client never read its reply
	return err
}

// traces turns on tracing of sandboxes if the environment names a collector.
// The returned function sends what is left.
func (d *daemon) traces(ctx context.Context, opts *adaptor.Options) (send func(), err error) {
	if !tracing.Wanted(d.getenv) {
		return func() {}, nil
	}
	tracer, err := tracing.New(ctx, d.cfg.NodeName, d.log)
	if err != nil {
		return nil, program.UsageError(err)
	}
	opts.Observers = append(opts.Observers, tracer)
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), shutdownGrace)
		defer cancel()
		if err := tracer.Close(ctx); err != nil {
			d.log.Warn("the last traces are lost", "error", err)
		}
	}, nil
}

func (d *daemon) reportState(state string) {
	if err := notify(d.getenv("NOTIFY_SOCKET"), state); err != nil {
		d.log.Warn("the service manager cannot be notified", "state", state, "error", err)
	}
}

func (d *daemon) close(service *adaptor.Service) error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownGrace)
	defer cancel()
	return service.Close(ctx)
}

func (d *daemon) verify(ctx context.Context) error {
	if !d.cfg.VerifyCloud {
		return nil
	}
	if err := provider.VerifyConfig(ctx, d.provider); err != nil {
		return fmt.Errorf("-cloud-config-verify: provider %s: %w", d.name, err)
	}
	d.log.Info("the provider's configuration is right", "provider", d.name)
	return nil
}

// options checks the configuration as a whole.
func (d *daemon) options() (adaptor.Options, error) {
	cfg := d.cfg
	subnets, err := parseSubnets(cfg.PodSubnets)
	if err != nil {
		return adaptor.Options{}, program.UsageError(err)
	}
	initdata, err := adaptor.NormalInitdata(cfg.Initdata)
	if err != nil {
		return adaptor.Options{}, program.Usagef("-initdata (INITDATA): %w", err)
	}
	tls, err := d.tls()
	if err != nil {
		return adaptor.Options{}, program.UsageError(err)
	}
	vnis, err := podnetwork.NewVNIPool(uint32(cfg.VXLANMinID))
	if err != nil {
		return adaptor.Options{}, err
	}
	opts := adaptor.Options{
		Provider:           d.provider,
		ProviderName:       d.name,
		Network:            &nodeNetwork{hostInterface: cfg.HostInterface, subnets: subnets, external: cfg.ExternalNet, metadata: cfg.PodMetadata, sourceCheck: cfg.checksSources()},
		VNIs:               vnis,
		MinVNI:             cfg.VXLANMinID,
		TLS:                tls,
		PodsDir:            cfg.PodsDir,
		ForwarderPort:      cfg.Forwarder,
		ProxyTimeout:       cfg.ProxyTimeout,
		VXLANPort:          cfg.VXLANPort,
		TunnelType:         cfg.TunnelType,
		ExternalViaPodVM:   cfg.ExternalNet,
		Initdata:           initdata,
		PodImages:          cfg.PodImages,
		InsecureRegistries: cfg.InsecureRegistries,
		AuthFile:           cfg.AuthFile,
		ScratchSpace:       cfg.Scratch,
		Pool:               adaptor.Pool{Size: int(cfg.PoolSize), Spec: provider.InstanceTypeSpec{VCPUs: cfg.PoolVCPUs, Memory: cfg.PoolMemory}},
		OtherPods:          cfg.OtherPods,
		ClusterID:          cfg.ClusterID,
		NodeName:           cfg.NodeName,
		OrphanTimeout:      cfg.Orphans,
		Observers:          []adaptor.Observer{d.metrics},
		Log:                d.log.With("provider", d.name),
		Hook:               d.hook,
	}
	if err := errors.Join(opts.Check(), cfg.checkPool()); err != nil {
		return opts, program.UsageError(err)
	}
	return opts, nil
}

func (d *daemon) tls() (adaptor.TLS, error) {
	cfg := d.cfg
	tls := adaptor.TLS{
		Disabled:     cfg.DisableTLS,
		Issue:        issue,
		SkipVerify:   cfg.SkipVerify,
		MinVersion:   cfg.TLSMin,
		CipherSuites: cfg.TLSSuites,
	}
	given := 0
	for _, file := range []string{cfg.CAFile, cfg.CertFile, cfg.KeyFile} {
		if file != "" {
			given++
		}
	}
	switch {
	case given != 0 && given != 3:
		return tls, errors.New("-ca-cert-file, -cert-file and -cert-key (CACERT_FILE, CERT_FILE, CERT_KEY) belong together: give all three or none")
	case given == 3:
		tls.OwnCA = &adaptor.OwnCA{CAFile: cfg.CAFile, CertFile: cfg.CertFile, KeyFile: cfg.KeyFile, ServerIdentity: cfg.Identity}
	case cfg.Identity != "":
		return tls, errors.New("-server-identity (SERVER_IDENTITY) needs -ca-cert-file, -cert-file and -cert-key: the CA that issued what is there")
	}
	if cfg.Identity != "" {
		if _, err := keybroker.ResourcePath(cfg.Identity); err != nil {
			return tls, fmt.Errorf("-server-identity (SERVER_IDENTITY): %w", err)
		}
	}
	return tls, checkTLSProfile(cfg.TLSMin, cfg.TLSSuites)
}

func checkTLSProfile(minVersion string, names []string) error {
	version, err := podtls.ParseVersion(minVersion)
	if err != nil {
		return fmt.Errorf("-tls-min-version (TLS_MIN_VERSION): %w", err)
	}
	suites, err := podtls.ParseCipherSuites(names)
	if err == nil {
		err = podtls.CheckCipherSuites(version, suites)
	}
	if err != nil {
		return fmt.Errorf("-tls-cipher-suites (TLS_CIPHER_SUITES): %w", err)
	}
	return nil
}

func (d *daemon) relayLink(ctx context.Context) (*relayLink, error) {
	if d.cfg.RelayOutside {
		link := &relayLink{log: d.log, external: true, opts: relay.EnsureOptions{Socket: d.cfg.RelaySocket}}
		return link, link.await(ctx)
	}
	program, err := relayProgram(d.cfg.RelayPath)
	if err != nil {
		return nil, err
	}
	return &relayLink{log: d.log, opts: relay.EnsureOptions{
		Socket:  d.cfg.RelaySocket,
		Binary:  program,
		LogFile: filepath.Join(filepath.Dir(d.cfg.RelaySocket), "relay.log"),
	}}, nil
}

// logConfig logs the settings in effect; none of them is secret.
func (d *daemon) logConfig() {
	d.log.Info("server config", append([]any{"version", version.Version, "provider", d.name}, describe(d.cfg.all)...)...)
	if d.cfg.DisableTLS || d.cfg.SkipVerify {
		d.log.Warn("the channel to pod VMs is insecure: -disable-tls or -tls-skip-verify is set")
	}
}
