// SPDX-License-Identifier: Apache-2.0

//go:build confidential

package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/proto"

	"github.com/outrigger/outrigger/internal/guest/agent"
	"github.com/outrigger/outrigger/internal/guest/attester"
	"github.com/outrigger/outrigger/internal/guest/datahub"
	"github.com/outrigger/outrigger/internal/guest/forwarder"
	"github.com/outrigger/outrigger/internal/guest/guestinit"
	"github.com/outrigger/outrigger/internal/guest/policy"
	"github.com/outrigger/outrigger/internal/guest/pull"
	"github.com/outrigger/outrigger/internal/keybroker/client"
	"github.com/outrigger/outrigger/internal/version"
)

func init() {
	agent.PolicyEngine = func(text string, state []byte) (agent.Policy, error) {
		p, err := policy.Compile(text, state)
		return engine{p}, err
	}
	agent.NewConfidential = func(c agent.ConfidentialConfig) (agent.Confidential, error) {
		hub, err := attested(c.Provisioned, filepath.Join(c.StateDir, "attestation"), c.Log)
		if err != nil {
			return nil, err // and no hub that is nil
		}
		return hub, nil
	}
	forwarder.ServerIdentity = serverIdentity
	guestinit.AlwaysEncryptScratch = true
}

// attested measures the pod's initdata. Where nothing can vouch for this VM the sample attester does, which brokers refuse.
func attested(provisioned, folder string, log *slog.Logger) (*datahub.Hub, error) {
	vm, err := attester.Find(attester.Options{Folder: folder, AllowSample: true})
	if err != nil {
		return nil, err
	}
	hub, err := datahub.New(context.Background(), datahub.Config{
		Provisioned: provisioned, Attester: vm, Version: version.Version, Log: log,
		Connect: func(url, certificate, initdata string) (datahub.Broker, error) {
			return client.New(client.Config{
				URL: url, Certificate: certificate, Attester: vm, InitData: initdata, DialContext: pull.Dialer().DialContext, Log: log,
			})
		},
	})
	if err != nil {
		vm.Close() //nolint:errcheck // the pod does not start
		return nil, err
	}
	return hub, nil
}

// serverIdentity attests before the pod's sandbox is made. The log of events is the agent's: this one has none, and is thrown away.
func serverIdentity(ctx context.Context, provisioned, uri string, log *slog.Logger) ([]byte, error) {
	folder, err := os.MkdirTemp("/run", "attestation-") // lost with the registers of the VM
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	hub, err := attested(provisioned, folder, log)
	if err != nil {
		return nil, err
	}
	defer hub.Close()
	return hub.Resource(ctx, uri)
}

// engine gives policies what kata-agent gives them.
type engine struct{ *policy.Policy }

func (e engine) Allow(ctx context.Context, request proto.Message) error {
	return e.Policy.Allow(ctx, string(request.ProtoReflect().Descriptor().Name()), policy.Input(request))
}
