// SPDX-License-Identifier: Apache-2.0

// Package attester collects evidence of where and as what this VM runs: from AMD SEV-SNP or Intel TDX by
// configfs-tsm of the kernel, or from a TPM 2.0. What verifies it is internal/attest/verify, elsewhere.
package attester

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/google/go-configfs-tsm/configfs/configfsi"

	"github.com/outrigger/outrigger/internal/attest"
	"github.com/outrigger/outrigger/internal/attest/eventlog"
)

// Attester is an [attest.Attester], with what it measures. That of a TPM is an [attest.Identity] too.
// Its methods may be called concurrently.
type Attester interface {
	attest.Attester
	// BindInitData makes all evidence have the digest of the VM's initdata. Calling it again with the same
	// digest does nothing; another digest is an error.
	BindInitData(ctx context.Context, digest []byte) error
	// Extend adds an event to the log that evidence has. It returns errors.ErrUnsupported, wrapped, if the
	// TEE has no register for it.
	Extend(ctx context.Context, event eventlog.Event) error
	// Close lets go of the device.
	Close() error
}

// Options is how to look for a TEE.
type Options struct {
	// Devices are those of a TPM, in the order of preference. Default: that of the kernel's resource manager,
	// /dev/tpmrm0, and /dev/tpm0.
	Devices []string
	// BootLog is the firmware's event log. Default: /sys/kernel/security/tpm0/binary_bios_measurements.
	// Evidence goes without if there is none.
	BootLog string
	// Folder is where the runtime log is. It has to be lost when the VM's registers are: below /run.
	Folder string
	// TSM is the kernel's configfs-tsm. Default: the one in /sys/kernel/config.
	TSM configfsi.Client
	// AllowSample makes evidence that proves nothing, if there is nothing that could.
	AllowSample bool
}

// Find returns the attester of this VM. A TEE of the processor is preferred to a TPM, which the host may emulate; initdata is bound to
// both, see [withTPM]. A TPM that is there and cannot be used is an error.
func Find(o Options) (Attester, error) {
	processor, noTSM := findTSM(o.TSM)
	tpm, noTPM := openTPM(o)
	switch {
	case noTPM != nil && !errors.Is(noTPM, fs.ErrNotExist):
		if noTSM == nil {
			noTPM = errors.Join(noTPM, processor.Close())
		}
		return nil, fmt.Errorf("this VM's TPM: %w", noTPM)
	case noTSM == nil && noTPM == nil:
		return withTPM{processor, tpm}, nil
	case noTSM == nil:
		return processor, nil
	case noTPM == nil:
		return tpm, nil
	}
	if o.AllowSample {
		return sample{}, nil
	}
	return nil, fmt.Errorf("nothing can vouch for this VM: no AMD SEV-SNP or Intel TDX (%w), and no TPM (%w). Run it as a confidential VM or give it a TPM", noTSM, noTPM)
}

// withTPM is the attester of a processor in a VM that has a TPM, too. The TPM has the same image in its registers: were that of the
// initdata left at zero, a privileged container could extend it with the initdata of another pod, and attest by the TPM as that pod.
type withTPM struct {
	Attester
	tpm Attester
}

func (w withTPM) BindInitData(ctx context.Context, digest []byte) error {
	if err := w.tpm.BindInitData(ctx, digest); err != nil {
		return fmt.Errorf("the TPM beside %s: %w", w.TEE(), err)
	}
	return w.Attester.BindInitData(ctx, digest)
}

func (w withTPM) Close() error { return errors.Join(w.Attester.Close(), w.tpm.Close()) }

type sample struct{}

func (sample) TEE() attest.TEE { return attest.Sample }

func (sample) Evidence(_ context.Context, reportData []byte) (json.RawMessage, error) {
	return json.Marshal(attest.SampleEvidence{SVN: "1", ReportData: reportData})
}

func (sample) BindInitData(context.Context, []byte) error { return nil }

func (sample) Extend(context.Context, eventlog.Event) error {
	return fmt.Errorf("the sample attester has no register for events: %w", errors.ErrUnsupported)
}

func (sample) Close() error { return nil }
