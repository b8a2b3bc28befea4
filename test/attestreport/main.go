// SPDX-License-Identifier: Apache-2.0

// Command attestreport collects evidence of the machine that it runs on, verifies it, and writes both as JSON: what users of real
// confidential VMs send, so that the project knows what works there. `make attest-report` runs it.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/attest"
	"github.com/outrigger/outrigger/internal/attest/verify"
	"github.com/outrigger/outrigger/internal/guest/attester"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/internal/redact"
	"github.com/outrigger/outrigger/internal/version"
)

// maxFetched bounds a certificate or list of a processor's maker, in bytes.
const maxFetched = 8 << 20

// report is what is sent.
type report struct {
	Version string    `json:"version"`
	Time    time.Time `json:"time"`
	Kernel  string    `json:"kernel"`
	Machine string    `json:"machine"`
	// TEE is empty if there is none, and Why says what was looked for.
	TEE      attest.TEE      `json:"tee"`
	Why      string          `json:"why,omitempty"`
	Took     string          `json:"took,omitempty"`
	Nonce    []byte          `json:"nonce,omitempty"`
	Evidence json.RawMessage `json:"evidence,omitempty"`
	// Offline and Online are what verifiers say, without and with what the processor's maker publishes.
	Offline *verdict `json:"offline,omitempty"`
	Online  *verdict `json:"online,omitempty"`
}

type verdict struct {
	Verified bool          `json:"verified"`
	Why      string        `json:"why,omitempty"`
	Claims   attest.Claims `json:"claims,omitempty"`
}

func main() {
	online := flag.Bool("online", false, "ask the processor's maker for certificates and lists, too")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: attestreport [-online]\nWrites evidence of this machine and what verifiers say of it, as JSON. Run it as root in the VM that it is about.")
		flag.PrintDefaults()
	}
	flag.Parse()
	r, err := collect(context.Background(), *online, os.TempDir())
	if err == nil {
		err = program.WriteJSON(os.Stdout, r)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "attestreport:", err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stderr, r.summary())
	if r.Offline == nil || !r.Offline.Verified && (r.Online == nil || !r.Online.Verified) {
		os.Exit(2)
	}
}

// collect writes what it needs below a folder.
func collect(ctx context.Context, online bool, dir string) (*report, error) {
	r := &report{Version: version.String(), Time: time.Now().UTC(), Kernel: kernel(), Machine: machine(), Nonce: make([]byte, 32)}
	folder, err := os.MkdirTemp(dir, "attestreport-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	vm, err := attester.Find(attester.Options{Folder: folder})
	if err != nil {
		r.Why = err.Error()
		return r, nil
	}
	defer vm.Close()
	if _, err := rand.Read(r.Nonce); err != nil {
		return nil, err
	}
	data, err := attest.ForVerifier(r.Nonce)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if r.TEE = vm.TEE(); r.TEE != "" {
		r.Evidence, err = vm.Evidence(ctx, data)
	}
	if err != nil {
		r.Why = err.Error()
		return r, nil
	}
	r.Took = time.Since(began).String()
	r.Offline = judge(ctx, &verify.Verifier{}, r.TEE, r.Evidence, data)
	if online {
		r.Online = judge(ctx, &verify.Verifier{Fetch: fetch}, r.TEE, r.Evidence, data)
	}
	return r, nil
}

func judge(ctx context.Context, v *verify.Verifier, tee attest.TEE, evidence json.RawMessage, data []byte) *verdict {
	claims, err := v.Verify(ctx, tee, evidence, attest.Expected{ReportData: data})
	if err != nil {
		return &verdict{Why: err.Error()}
	}
	return &verdict{Verified: true, Claims: claims}
}

func fetch(ctx context.Context, url string) (map[string][]string, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, nil, err
	}
	resp, err := (&http.Client{Timeout: time.Minute}).Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxFetched))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return resp.Header, body, err
}

func kernel() string {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return runtime.GOOS
	}
	return unix.ByteSliceToString(name.Release[:]) + " " + runtime.GOARCH
}

// machine is what the firmware says of maker and product.
func machine() string {
	var words []string
	for _, file := range []string{"sys_vendor", "product_name"} {
		text, err := os.ReadFile(filepath.Join("/sys/class/dmi/id", file))
		if err == nil {
			words = append(words, redact.Line(strings.TrimSpace(string(text))))
		}
	}
	return strings.Join(words, " ")
}

func (r *report) summary() string {
	said := func(what string, v *verdict) string {
		switch {
		case v == nil:
			return ""
		case v.Verified:
			return "; " + what + ": verified"
		}
		return "; " + what + ": NOT verified: " + v.Why
	}
	if r.TEE == "" || r.Evidence == nil {
		return "no evidence: " + redact.Line(r.Why)
	}
	return fmt.Sprintf("evidence of %s in %s%s%s\nIt names the processor or TPM: look at it before you send it.", r.TEE, r.Took, said("offline", r.Offline), said("online", r.Online))
}
