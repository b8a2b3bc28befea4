// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"

	definition "github.com/outrigger/outrigger/images/node"
	"github.com/outrigger/outrigger/internal/dockerengine"
	"github.com/outrigger/outrigger/internal/machines/docker/nodeagent"
	"github.com/outrigger/outrigger/provider"
)

// kindsEntrypoint begins what kind's node images start with: a script, then systemd.
var kindsEntrypoint = []string{"/usr/local/bin/entrypoint", "/sbin/init"}

// entrypointOf returns what a machine with an image of kind's starts with: the node agent,
// which hands over to the image's own command. It is nil for other images, which start a
// node agent of their own.
func (b *Backend) entrypointOf(ctx context.Context, image string) ([]string, error) {
	result, err := b.engine.ImageInspect(ctx, image)
	if err != nil {
		return nil, fmt.Errorf("look at image %s: %w", image, err)
	}
	if result.Config == nil {
		return nil, nil
	}
	start := slices.Concat(result.Config.Entrypoint, result.Config.Cmd)
	if len(start) < len(kindsEntrypoint) || !slices.Equal(start[:len(kindsEntrypoint)], kindsEntrypoint) {
		return nil, nil
	}
	if result.Architecture != "" && result.Architecture != runtime.GOARCH {
		return nil, because(ReasonImageUnfit, provider.ErrInvalidArgument,
			"image %s is one of kind's, for %s: it needs the node agent of this manager, which is a program for %s; take one of `make node-image`, which has its own (docs/capi-docker.md, Node images)", image, result.Architecture, runtime.GOARCH)
	}
	return append([]string{nodeagent.Program, nodeagent.HandOver}, start...), nil
}

// stopSignal is what tells systemd as the first process to stop; on SIGTERM it starts itself again.
const stopSignal = "SIGRTMIN+3"

// bringsNoAgent reports whether a container's image is one of kind's, by what it starts with.
func bringsNoAgent(entrypoint []string) bool {
	return len(entrypoint) > 2 && slices.Equal(entrypoint[:2], []string{nodeagent.Program, nodeagent.HandOver})
}

func (b *Backend) copyAgent(ctx context.Context, id string) error {
	settings, err := settingsForKind()
	if err != nil {
		return err
	}
	program, err := os.Open(b.nodeAgent)
	if err != nil {
		return fmt.Errorf("the node agent for an image of kind's: %w", err)
	}
	defer program.Close()
	info, err := program.Stat()
	if err != nil {
		return err
	}
	if err := dockerengine.CopyIn(ctx, b.engine, id, agentFiles(settings, program, info.Size())...); err != nil {
		return fmt.Errorf("copy the node agent into the container: %w", err)
	}
	return nil
}

func agentFiles(settings []byte, program io.Reader, size int64) []dockerengine.File {
	return []dockerengine.File{
		{Name: nodeagent.ConfigDir + "/", Mode: 0o755},
		{Name: nodeagent.ConfigDir + "/settings.json", Mode: 0o644, Data: settings},
		{Name: nodeagent.Program, Mode: 0o755, Content: program, Size: size},
	}
}

// settingsForKind returns the agent's settings: those of our own image, except for where programs
// are and what a bootstrap waits for, which are other services there.
func settingsForKind() ([]byte, error) {
	text, err := definition.Files.ReadFile("files" + nodeagent.ConfigDir + "/settings.json")
	if err != nil {
		return nil, err
	}
	var s nodeagent.Settings
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	s.Needs = nil
	for _, command := range [][]string{s.ImportImage, s.Reset} {
		if len(command) > 0 {
			command[0] = command[0][strings.LastIndex(command[0], "/")+1:]
		}
	}
	return json.Marshal(s)
}
