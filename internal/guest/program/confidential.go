// SPDX-License-Identifier: Apache-2.0

//go:build confidential

package main

import (
	"context"
	"path/filepath"

	"google.golang.org/protobuf/proto"

	"github.com/outrigger/outrigger/internal/guest/agent"
	"github.com/outrigger/outrigger/internal/guest/attester"
	"github.com/outrigger/outrigger/internal/guest/datahub"
	"github.com/outrigger/outrigger/internal/guest/guestinit"
	"github.com/outrigger/outrigger/internal/guest/policy"
	"github.com/outrigger/outrigger/internal/guest/pull"
	"github.com/outrigger/outrigger/internal/keybroker/client"
)

func init() {
	agent.PolicyEngine = func(text string, state []byte) (agent.Policy, error) {
		p, err := policy.Compile(text, state)
		return engine{p}, err
	}
	agent.NewConfidential = attested
	guestinit.AlwaysEncryptScratch = true
}

// attested measures the pod's initdata. Where nothing can vouch for this VM the sample attester does, which brokers refuse.
func attested(c agent.ConfidentialConfig) (agent.Confidential, error) {
	vm, err := attester.Find(attester.Options{Folder: filepath.Join(c.StateDir, "attestation"), AllowSample: true})
	if err != nil {
		return nil, err
	}
	hub, err := datahub.New(context.Background(), datahub.Config{
		Provisioned: c.Provisioned, Attester: vm, Version: c.Version, Log: c.Log,
		Connect: func(url, certificate, initdata string) (datahub.Broker, error) {
			return client.New(client.Config{
				URL: url, Certificate: certificate, Attester: vm, InitData: initdata, DialContext: pull.Dialer().DialContext, Log: c.Log,
			})
		},
	})
	if err != nil {
		vm.Close() //nolint:errcheck // the pod does not start
		return nil, err
	}
	return hub, nil
}

// engine gives policies what kata-agent gives them.
type engine struct{ *policy.Policy }

func (e engine) Allow(ctx context.Context, request proto.Message) error {
	return e.Policy.Allow(ctx, string(request.ProtoReflect().Descriptor().Name()), policy.Input(request))
}
