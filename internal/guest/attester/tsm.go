// SPDX-License-Identifier: Apache-2.0

package attester

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/go-configfs-tsm/configfs/configfsi"
	"github.com/google/go-configfs-tsm/configfs/linuxtsm"
	"github.com/google/go-configfs-tsm/report"

	"github.com/outrigger/outrigger/internal/attest"
	"github.com/outrigger/outrigger/internal/attest/eventlog"
)

// tsm is the attester of a processor's TEE.
type tsm struct {
	client   configfsi.Client
	tee      attest.TEE
	eventLog string
}

// ccEventLog is where Linux has the firmware's log of a confidential VM.
const ccEventLog = "/sys/firmware/acpi/tables/data/CCEL"

// findTSM returns the attester of a processor by the name that its driver in Linux has
// (Documentation/ABI/testing/configfs-tsm-report).
func findTSM(client configfsi.Client) (Attester, error) {
	if client == nil {
		var err error
		if client, err = linuxtsm.MakeClient(); err != nil {
			return nil, fmt.Errorf("the kernel offers no reports by configfs-tsm: %w", err)
		}
	}
	r, err := report.CreateOpenReport(client)
	if err != nil {
		return nil, err
	}
	name, err := r.ReadOption("provider")
	if err := errors.Join(err, r.Destroy()); err != nil {
		return nil, err
	}
	switch provider := strings.TrimSpace(string(name)); provider {
	case "sev_guest":
		return &tsm{client: client, tee: attest.SNP}, nil
	case "tdx_guest":
		return &tsm{client: client, tee: attest.TDX, eventLog: ccEventLog}, nil
	default:
		return nil, fmt.Errorf("configfs-tsm is of %.32q, which is neither sev_guest nor tdx_guest", provider)
	}
}

func (t *tsm) TEE() attest.TEE { return t.tee }

func (t *tsm) Close() error { return nil }

// Extend fails: SNP has no register, and Trustee's verifier knows those of TDX only by a log whose form is not ours.
func (t *tsm) Extend(context.Context, eventlog.Event) error {
	return fmt.Errorf("%s has no register for events: %w", t.tee, errors.ErrUnsupported)
}

// Evidence implements [attest.Attester].
func (t *tsm) Evidence(_ context.Context, reportData []byte) (json.RawMessage, error) {
	r, err := t.get(attest.FixedSize(reportData, 64))
	if err != nil {
		return nil, err
	}
	if t.tee == attest.TDX {
		log, err := readBounded(t.eventLog, attest.MaxBootLog)
		if err != nil {
			return nil, fmt.Errorf("the firmware's event log: %w", err)
		}
		return json.Marshal(attest.TDXEvidence{Quote: r.OutBlob, EventLog: attest.TrimBootLog(log)})
	}
	fields, err := attest.ParseSNPReport(r.OutBlob)
	if err != nil {
		return nil, err
	}
	certificates, err := parseCertificates(r.AuxBlob)
	if err != nil {
		return nil, fmt.Errorf("the host's certificates for SNP: %w", err)
	}
	return json.Marshal(attest.SNPEvidence{Report: *fields, Certificates: certificates})
}

func (t *tsm) get(reportData []byte) (*report.Response, error) {
	request := &report.Request{InBlob: reportData, GetAuxBlob: t.tee == attest.SNP}
	for range quotes {
		r, err := report.Get(t.client, request)
		if err == nil {
			return r, nil
		}
		if report.GetGenerationErr(err) == nil { // else another process wrote to the same entry
			return nil, fmt.Errorf("the report of %s: %w", t.tee, err)
		}
	}
	return nil, fmt.Errorf("the report of %s: other processes interfered %d times", t.tee, quotes)
}

// BindInitData has nothing to extend: a digest is in HOSTDATA or MRCONFIGID since the launch, if the cloud can put
// it there. It returns errors.ErrUnsupported, wrapped, if the cloud has not.
func (t *tsm) BindInitData(_ context.Context, digest []byte) error {
	r, err := t.get(make([]byte, 64))
	if err != nil {
		return err
	}
	// Where they are: AMD 56860, table 23; Intel TDX DCAP Quoting Library API, A.3.2.
	name, offset, size := "HOSTDATA", 0xc0, 32
	if t.tee == attest.TDX {
		name, offset, size = "MRCONFIGID", 232, 48
	}
	if len(r.OutBlob) < offset+size {
		return fmt.Errorf("the report of %s has %d bytes only", t.tee, len(r.OutBlob))
	}
	switch value := r.OutBlob[offset : offset+size]; {
	case bytes.Equal(value, attest.FixedSize(digest, size)):
		return nil
	case bytes.Equal(value, make([]byte, size)):
		return fmt.Errorf("the cloud did not set %s to the digest of the initdata: %w", name, errors.ErrUnsupported)
	default:
		return fmt.Errorf("%s is not the digest of this initdata: the VM was started with another", name)
	}
}

// Certificates by the GUIDs that they have in the host's table (AMD 56421, GHCB, 4.1.8.1).
var certificateTypes = map[string]string{
	"c0b406a4a803495297433fb6014cd0ae": "ARK",
	"4ab7b379bbac4fe4a02f05aef327c782": "ASK",
	"63da758de6644564adc5f4b93be8accd": "VCEK",
	"a8074bc2a25a483eaae639c045a0b8a1": "VLEK",
}

const tableEntry = 24

// parseCertificates returns those of a table that a verifier uses. The table is the host's.
func parseCertificates(table []byte) (certificates []attest.SNPCertificate, err error) {
	for rest := table; len(rest) >= tableEntry && !bytes.Equal(rest[:tableEntry], make([]byte, tableEntry)); rest = rest[tableEntry:] {
		offset, length := uint64(binary.LittleEndian.Uint32(rest[16:])), uint64(binary.LittleEndian.Uint32(rest[20:]))
		if offset+length > uint64(len(table)) {
			return nil, fmt.Errorf("an entry of the table ends at %d of %d bytes", offset+length, len(table))
		}
		if kind, known := certificateTypes[hex.EncodeToString(rest[:16])]; known {
			certificates = append(certificates, attest.SNPCertificate{Type: kind, Data: table[offset : offset+length]})
		}
	}
	return certificates, nil
}
