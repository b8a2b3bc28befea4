// SPDX-License-Identifier: Apache-2.0

package userdata

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/outrigger/outrigger/internal/peerpods/apf"
	"github.com/outrigger/outrigger/internal/peerpods/handover"
	"github.com/outrigger/outrigger/internal/peerpods/podtls"
	"github.com/outrigger/outrigger/internal/timeline/marks"
	"github.com/outrigger/outrigger/provider/cloudinit"
)

// AwaitPod returns at once unless [Provision] wrote an apf.json that says await-pod. Then
// it listens at address with the identity in there, until it was handed the user-data of a
// pod (package handover), and provisions that in place of the first: no file of the first
// is left. A document that cannot be used is refused, and the wait goes on. Of o only
// Dir, Logger and Marks are used. Errors: an apf.json without a usable identity; an address
// at which it cannot listen; the cause for which ctx ended.
func AwaitPod(ctx context.Context, o Options, address string) error {
	text, err := os.ReadFile(filepath.Join(o.Dir, forwarderFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	pool, err := apf.Parse(text)
	if err != nil || !pool.AwaitPod {
		return err
	}
	options, err := pool.TLS()
	if err != nil {
		return fmt.Errorf("%s of a pool: %w", forwarderFile, err)
	}
	tls, err := podtls.ServerConfig(options)
	if err != nil {
		return fmt.Errorf("%s of a pool: %w", forwarderFile, err)
	}
	remark := ""
	if o.Rehearse != nil {
		if err := o.Rehearse(ctx, pool.PrefetchImages); err != nil {
			remark = err.Error()
		}
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("wait for a pod: %w", err)
	}
	o.Logger.Info("waiting for a pod", "address", listener.Addr())
	if err := handover.Receive(ctx, listener, tls, remark, o.takeOver); err != nil {
		return fmt.Errorf("wait for a pod: %w", err)
	}
	o.Logger.Info("handed over to a pod")
	return nil
}

// takeOver provisions the user-data of the pod.
func (o Options) takeOver(document []byte) error {
	began := marks.Uptime()
	config, err := cloudinit.Parse(document)
	if err == nil {
		err = checkPod(config)
	}
	if err == nil {
		err = o.removeAll()
	}
	if err == nil {
		err = o.writeAll(config)
	}
	if err != nil {
		o.Logger.Warn("refused the user-data of a pod", "error", err)
		return err
	}
	o.Marks.Note(marks.Handover, began, "")
	return nil
}

// checkPod returns an error for a document with which no pod could begin.
func checkPod(config *cloudinit.CloudConfig) error {
	found := false
	for _, f := range config.WriteFiles {
		if f.Path != DefaultDir+"/"+forwarderFile {
			continue
		}
		pod, err := apf.Parse([]byte(f.Content))
		if err != nil {
			return err
		}
		if pod.AwaitPod {
			return fmt.Errorf("%s says await-pod: this is the user-data of a pool and not of a pod", forwarderFile)
		}
		found = true
	}
	if !found {
		return errors.New("the user-data of a pod has no " + forwarderFile)
	}
	return nil
}

// removeAll removes what a document before this one wrote.
func (o Options) removeAll() error {
	names := append([]string{initDataDigest}, fromInitData...)
	for name := range allowed {
		names = append(names, name)
	}
	for _, name := range names {
		if err := os.Remove(filepath.Join(o.Dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
