// SPDX-License-Identifier: Apache-2.0

// Package datahub gives a pod what only a VM that has proved itself gets: resources of a
// key broker, sealed Secrets, evidence. It does the work of Confidential Containers' attestation-agent,
// confidential-data-hub and api-server-rest, with their settings and their addresses.
package datahub

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/outrigger/outrigger/internal/attest"
	"github.com/outrigger/outrigger/internal/attest/eventlog"
	"github.com/outrigger/outrigger/internal/guest/attester"
	"github.com/outrigger/outrigger/internal/ociimage/signed"
	"github.com/outrigger/outrigger/provider/cloudinit"
)

// Broker is a session with a key broker.
type Broker interface {
	// Resource returns what is at a URI such as kbs:///default/key/1.
	Resource(ctx context.Context, uri string) ([]byte, error)
	// Token returns an attestation token, and the PEM of the private key that it vouches for.
	Token(ctx context.Context) (token string, key []byte, err error)
}

// Config is what a hub is made of.
type Config struct {
	// Provisioned is the folder with the pod's initdata.
	Provisioned string
	Attester    attester.Attester
	// Connect returns a broker that is at a URL, with a certificate (PEM) or "" for those that everybody trusts, for
	// a VM with this initdata (TOML).
	Connect func(url, certificate, initdata string) (Broker, error)
	Version string
	Log     *slog.Logger
}

// Hub is a pod's.
type Hub struct {
	cfg      Config
	settings settings
	broker   Broker // nil if the pod names none
	// asked: there is an aa.toml or a cdh.toml.
	asked bool

	policyLock sync.Mutex // held while the policy for images is fetched
	policy     *signed.Policy

	mu       sync.Mutex
	status   attest.Status
	recorded map[eventlog.Event]bool
}

// New reads the pod's initdata and measures it. What it asks for and this image does not have is an error.
func New(ctx context.Context, cfg Config) (*Hub, error) {
	data, err := readInitData(cfg.Provisioned)
	if err != nil {
		return nil, err
	}
	if err := onlyMeasured(cfg.Provisioned, data); err != nil {
		return nil, err
	}
	digest, err := hex.DecodeString(data.Digest())
	if err != nil {
		return nil, err
	}
	bound := string(data.TOML())
	switch err := cfg.Attester.BindInitData(ctx, digest); {
	case errors.Is(err, errors.ErrUnsupported): // the provider did not give it to the processor: brokers that want it refuse the VM
		cfg.Log.Warn("the initdata is not part of the evidence", "tee", cfg.Attester.TEE(), "why", err)
		bound = ""
	case err != nil:
		return nil, fmt.Errorf("measure the initdata: %w", err)
	}
	h := &Hub{cfg: cfg, recorded: map[eventlog.Event]bool{}, asked: strings.TrimSpace(data.Data[aaFile]+data.Data[cdhFile]) != ""}
	if h.settings, err = parseSettings(data.Data[aaFile], data.Data[cdhFile]); err != nil {
		return nil, err
	}
	h.status = attest.Status{TEE: cfg.Attester.TEE(), Broker: h.settings.url}
	if h.settings.url == "" {
		return h, nil
	}
	if h.broker, err = cfg.Connect(h.settings.url, h.settings.certificate, bound); err != nil {
		return nil, fmt.Errorf("initdata: key broker: %w", err)
	}
	return h, nil
}

// Entries of the initdata.
const (
	aaFile     = "aa.toml"
	cdhFile    = "cdh.toml"
	policyFile = "policy.rego"
)

func readInitData(dir string) (*cloudinit.InitData, error) {
	text, err := os.ReadFile(filepath.Join(dir, "initdata"))
	if errors.Is(err, fs.ErrNotExist) {
		return cloudinit.EmptyInitData(), nil
	}
	if err != nil {
		return nil, fmt.Errorf("the pod's initdata: %w", err)
	}
	return cloudinit.DecodeInitData(string(text))
}

// onlyMeasured refuses settings that user-data has brought beside the initdata, and a policy that is not the one there: they would be in no evidence.
func onlyMeasured(dir string, data *cloudinit.InitData) error {
	for _, name := range []string{aaFile, cdhFile, policyFile} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if strings.TrimSpace(string(text)) != strings.TrimSpace(data.Data[name]) {
			return fmt.Errorf("%s is in the VM's user-data, and not the same in the pod's initdata: it would not be measured. Put it into the initdata", name)
		}
	}
	return nil
}

// Attest attests to the pod's broker, if there is one, so that what needs it later need not wait.
func (h *Hub) Attest(ctx context.Context) {
	if h.broker == nil {
		return
	}
	if _, _, err := h.Token(ctx); err != nil {
		h.cfg.Log.Error("attestation", "broker", h.settings.url, "err", err)
		return
	}
	h.cfg.Log.Info("the key broker has accepted this VM", "broker", h.settings.url, "tee", h.status.TEE)
}

// Status returns how far the attestation is.
func (h *Hub) Status() attest.Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.status
}

var errNoBroker = errors.New("the pod names no key broker: put the [kbc] of a cdh.toml, or the [token_configs.kbs] of an aa.toml, into its initdata")

// Token returns an attestation token and the private key that it vouches for, PEM.
func (h *Hub) Token(ctx context.Context) (token string, key []byte, err error) {
	if h.broker == nil {
		return "", nil, errNoBroker
	}
	token, key, err = h.broker.Token(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil || !h.status.Accepted {
		h.status.Accepted, h.status.Err = err == nil, err
	}
	return token, key, err
}

// Resource returns what the pod's broker has at a URI.
func (h *Hub) Resource(ctx context.Context, uri string) ([]byte, error) {
	if h.broker == nil {
		return nil, errNoBroker
	}
	data, err := h.broker.Resource(ctx, uri)
	if err != nil {
		return nil, fmt.Errorf("resource %.256q of the key broker: %w", uri, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status.Accepted, h.status.Err = true, nil
	return data, nil
}

// Close lets go of the TEE's device.
func (h *Hub) Close() error { return h.cfg.Attester.Close() }

// Evidence returns evidence that is bound to data.
func (h *Hub) Evidence(ctx context.Context, data []byte) (json.RawMessage, error) {
	return h.cfg.Attester.Evidence(ctx, data)
}
