// SPDX-License-Identifier: Apache-2.0

//go:build confidential

package main

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/outrigger/outrigger/internal/guest/agent"
	"github.com/outrigger/outrigger/internal/guest/policy"
)

func init() {
	agent.PolicyEngine = func(text string, state []byte) (agent.Policy, error) {
		p, err := policy.Compile(text, state)
		return engine{p}, err
	}
}

// engine gives policies what kata-agent gives them.
type engine struct{ *policy.Policy }

func (e engine) Allow(ctx context.Context, request proto.Message) error {
	return e.Policy.Allow(ctx, string(request.ProtoReflect().Descriptor().Name()), policy.Input(request))
}
