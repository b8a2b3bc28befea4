// SPDX-License-Identifier: Apache-2.0

// Package verification verifies the evidence of a pod's VM on the machine of whoever asks, and says what it proves
// and what it does not.
package verification

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/internal/attest"
	"github.com/outrigger/outrigger/internal/attest/eventlog"
	"github.com/outrigger/outrigger/internal/attest/verify"
	"github.com/outrigger/outrigger/internal/redact"
	"github.com/outrigger/outrigger/provider/cloudinit"
)

// Options are what the user knows of the pod without asking the cluster.
type Options struct {
	// InitData is a file with the initdata that the VM must have: TOML, or the annotation's value.
	InitData string
	// References is a file of reference values: what claims must be.
	References string
	// AllowSample takes evidence that proves nothing.
	AllowSample bool
}

// Flags adds the options' flags.
func (o *Options) Flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.InitData, "initdata", "", "file with the initdata that the VM must have, as TOML or as the annotation has it (default: that of the Pod's annotation, which the cluster could change)")
	f.StringVar(&o.References, "reference-values", "", `JSON file of what claims must be, {"pcr04": ["HEX", ...], ...}: podvm-image measure -o rvps writes one`)
	f.BoolVar(&o.AllowSample, "allow-sample", false, "take evidence of the sample attester, which proves nothing: for tests")
}

const (
	// nonceSize in bytes is that of a digest; nobody guesses it.
	nonceSize = 32
	// maxFile bounds the files of Options, in bytes.
	maxFile = 2 << 20
)

// Nonce returns one for a single question.
func Nonce() ([]byte, error) {
	nonce := make([]byte, nonceSize)
	_, err := rand.Read(nonce)
	return nonce, err
}

// Report is what evidence proves.
type Report struct {
	Pod string     `json:"pod"`
	TEE attest.TEE `json:"tee"`
	// Proven and Unproven are sentences.
	Proven   []string `json:"proven"`
	Unproven []string `json:"unproven"`
	// Failed is why the evidence is not accepted; empty if it is.
	Failed string           `json:"failed,omitempty"`
	Events []eventlog.Event `json:"events,omitempty"`
	Claims attest.Claims    `json:"claims,omitempty"`
	Broker string           `json:"broker,omitempty"`
	// BrokerSays is what the VM says that the broker says.
	BrokerSays string `json:"brokerSays,omitempty"`
}

// Verify verifies what a VM has answered to a nonce. annotation is the Pod's initdata as the cluster has it, "" if unknown. An
// error is about the options; what is wrong with the evidence is in the report.
func (o *Options) Verify(ctx context.Context, pod string, answer *attest.Answer, nonce []byte, annotation string) (*Report, error) {
	r := &Report{Pod: pod, TEE: answer.TEE, Broker: answer.Broker, BrokerSays: brokerSays(answer)}
	expected, err := o.expected(r, nonce, annotation)
	if err != nil {
		return nil, err
	}
	references, err := o.references()
	if err != nil {
		return nil, err
	}
	verifier := &verify.Verifier{AllowSample: o.AllowSample}
	if r.Claims, err = verifier.Verify(ctx, answer.TEE, answer.Evidence, expected); err != nil {
		r.Proven, r.Unproven, r.Failed = nil, nil, err.Error()
		return r, nil
	}
	r.Proven = append([]string{"the evidence was made for this question: it is neither old nor another's"}, r.Proven...)
	r.ofTEE()
	if err := r.compare(references); err != nil {
		r.Failed = err.Error()
	}
	if events, is := r.Claims["events"].([]eventlog.Event); is {
		r.Events = events
	}
	return r, nil
}

func brokerSays(answer *attest.Answer) string {
	switch {
	case answer.Broker == "":
		return ""
	case answer.Accepted:
		return "it has accepted the VM's evidence"
	case answer.Error != "":
		return "it gives nothing: " + answer.Error
	}
	return "it has not answered yet"
}

func (o *Options) expected(r *Report, nonce []byte, annotation string) (attest.Expected, error) {
	data, err := attest.ForVerifier(nonce)
	if err != nil {
		return attest.Expected{}, err
	}
	expected, text, of := attest.Expected{ReportData: data}, annotation, "as the Pod has it in the cluster; --initdata FILE would not rely on that"
	if o.InitData != "" {
		of = "as " + o.InitData + " has it"
		if text, err = read(o.InitData); err != nil {
			return attest.Expected{}, fmt.Errorf("--initdata: %w", err)
		}
	}
	if text == "" {
		r.Unproven = append(r.Unproven, "which initdata the VM has: the Pod has none of its own. Give --initdata if its node has a default")
		return expected, nil
	}
	initdata, err := cloudinit.DecodeInitData(text)
	if err != nil {
		return attest.Expected{}, err
	}
	if expected.InitData, err = hex.DecodeString(initdata.Digest()); err != nil {
		return attest.Expected{}, err
	}
	r.Proven = append(r.Proven, fmt.Sprintf("the VM has the initdata of %s %s, %s: policy and key broker are those", initdata.Algorithm, initdata.Digest(), of))
	return expected, nil
}

// ofTEE says what a TEE's evidence is worth.
func (r *Report) ofTEE() {
	switch r.TEE {
	case attest.Sample:
		r.Proven = nil
		r.Unproven = []string{"anything: the sample attester makes up what it is asked for"}
	case attest.TPM:
		r.Proven = append(r.Proven, "a TPM holds the values of the registers, and the events lead to them")
		r.Unproven = append(r.Unproven,
			"that the TPM is a real one, or the cloud's: give its attestation key as trusted_ak in --reference-values, or have a key broker ask for its endorsement certificate",
			"that nobody reads the VM's memory: a TPM says what was booted, and does not encrypt")
	default:
		r.Proven = append(r.Proven, fmt.Sprintf("the VM runs on a processor with %s, whose maker's key signed this; its memory is encrypted, and it may not be debugged", strings.ToUpper(string(r.TEE))))
		if r.Claims["policy_migrate_ma"] == true {
			r.Unproven = append(r.Unproven, "that nobody else has the memory: the VM may have a migration agent, which can")
		}
	}
}

// compare compares claims with what they must be.
func (r *Report) compare(references attest.References) error {
	agree, err := references.Appraise(r.TEE, r.Claims)
	switch {
	case err != nil:
		return err
	case len(agree) == 0 && len(references) > 0:
		return fmt.Errorf("none of the reference values is of evidence of %s: what was booted is not known", r.TEE)
	case len(agree) == 0:
		r.Unproven = append(r.Unproven, "which image was booted: give --reference-values, of podvm-image measure -o rvps")
	default:
		r.Proven = append(r.Proven, "as the reference values have it: "+strings.Join(agree, ", "))
	}
	return nil
}

func (o *Options) references() (attest.References, error) {
	if o.References == "" {
		return nil, nil
	}
	text, err := read(o.References)
	if err != nil {
		return nil, fmt.Errorf("--reference-values: %w", err)
	}
	file, err := attest.ParseReferences([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("--reference-values: %s: %w", o.References, err)
	}
	return file, nil
}

func read(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = errors.New("it has more than 2 MiB")
	}
	return string(data), err
}

// Print writes the report for humans.
func (r *Report) Print(w io.Writer) {
	fmt.Fprintf(w, "pod %s, evidence of %s\n", r.Pod, redact.Line(string(r.TEE)))
	if r.Failed != "" {
		fmt.Fprintf(w, "✗ NOT VERIFIED: %s\n", redact.Line(r.Failed))
	}
	for _, text := range r.Proven {
		fmt.Fprintln(w, "✓", text)
	}
	for _, text := range r.Unproven {
		fmt.Fprintln(w, "? not proven:", text)
	}
	for _, e := range r.Events {
		fmt.Fprintf(w, "  event %s %s\n", e.Operation, redact.Line(e.Content))
	}
	if r.Broker != "" {
		fmt.Fprintf(w, "  key broker %s: the VM says, %s\n", redact.Line(r.Broker), redact.Line(r.BrokerSays))
	}
}
