// SPDX-License-Identifier: Apache-2.0

//go:build bench

package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/outrigger/outrigger/internal/peerpods/podclient"
	"github.com/outrigger/outrigger/test/bench/promises"
	"github.com/outrigger/outrigger/test/stand"
)

// configMapFiles and configMapFile, in bytes, are as much as an API server takes: 1 MiB with the names.
const (
	configMapFiles = 500
	configMapFile  = 2 << 10
)

// configMap is what a ConfigMap adds to the start of a container: containers of one pod, with it and without it in turns.
func configMap(t *testing.T, runs int) []promises.Figure {
	dir, registry := stand.Dir(t), stand.StartRegistry(t)
	stand.StartAdaptor(t, dir)
	netns, _ := stand.PodNetns(t, dir, "configmap")
	pod, err := podclient.New(dir+"/hypervisor.sock").Create(t.Context(), podclient.PodSpec{Name: "configmap", Netns: netns})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := pod.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	mount := podclient.Mount{Type: podclient.MountBind, Source: configMapVolume(t), Destination: "/config", ReadOnly: true}
	start := func(name string, mounts ...podclient.Mount) time.Duration {
		began := time.Now()
		c, err := pod.CreateContainer(t.Context(), podclient.ContainerSpec{Name: name, Image: registry.Ref, Mounts: mounts, Args: []string{"/bin/sleep", "infinity"}})
		if err == nil {
			err = c.Start(t.Context())
		}
		took := time.Since(began)
		if err == nil {
			_, err = c.Stop(t.Context(), 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		return took
	}
	start("pulls")
	var with, without []time.Duration
	for i := range runs {
		without = append(without, start(fmt.Sprint("without-", i)))
		with = append(with, start(fmt.Sprint("with-", i), mount))
	}
	return []promises.Figure{{Promise: "configmap", Value: float64((median(with) - median(without)).Microseconds()) / 1000,
		How: fmt.Sprintf("%d ms without it", median(without).Milliseconds())}}
}

// configMapVolume returns a folder such as kubelet makes: the files are in a hidden one, and links lead to them.
func configMapVolume(t *testing.T) string {
	dir := t.TempDir()
	err := errors.Join(os.Mkdir(dir+"/..files", 0o755), os.Symlink("..files", dir+"/..data"))
	for i := range configMapFiles {
		name := fmt.Sprintf("file-%03d", i)
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, "..files", name), bytes.Repeat([]byte{byte(i)}, configMapFile), 0o644), os.Symlink("..data/"+name, filepath.Join(dir, name)))
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
