// SPDX-License-Identifier: Apache-2.0

package guestinit

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/vishvananda/netns"

	"github.com/outrigger/outrigger/internal/guest/kataguest"
	"github.com/outrigger/outrigger/internal/localnet"
)

// startKata starts kata-agent, and the components that the image has, in place of our agent.
func (g *guest) startKata(kata *kataguest.Guest) error {
	if err := kata.Prepare(kataguest.Policy); err != nil {
		return fmt.Errorf("prepare %s: %w", kataguest.Agent, err)
	}
	for _, s := range kata.Services() {
		go g.superviseAfter(s)
	}
	return nil
}

// superviseAfter keeps a service running once all is there for which it waits.
func (g *guest) superviseAfter(s kataguest.Service) {
	for slices.ContainsFunc(s.After, missing) {
		time.Sleep(socketPoll)
	}
	g.keep(s.Argv[0], "0", nil, func() (p *process, err error) {
		if err := os.RemoveAll(s.Socket); err != nil {
			return nil, err
		}
		if s.Namespace == "" {
			return g.spawn(s.Argv, nil, s.Env...)
		}
		ns, err := netns.GetFromPath(s.Namespace)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Namespace, err)
		}
		defer ns.Close()
		err = localnet.InNetns(ns, func() (err error) {
			p, err = g.spawn(s.Argv, nil, s.Env...)
			return err
		})
		return p, err
	})
}

// socketPoll is how often it is looked for what a service waits for.
const socketPoll = 20 * time.Millisecond

func missing(path string) bool {
	_, err := os.Stat(path)
	return err != nil
}
