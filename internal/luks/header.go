// SPDX-License-Identifier: Apache-2.0

package luks

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Where the parts of a header are that cryptsetup makes, in bytes: two copies of header and metadata, key slots, data
// (LUKS2 On-Disk Format Specification 1.1, sections 2 and 3).
const (
	headerSize = 16 << 10 // of one copy, with its metadata
	binarySize = 4 << 10  // of the binary part
	areaOffset = 2 * headerSize
	// DataOffset is where the data begin.
	DataOffset = 16 << 20
)

// magic begins the first copy of the header, and magicSecond the second.
var magic, magicSecond = [6]byte{'L', 'U', 'K', 'S', 0xba, 0xbe}, [6]byte{'S', 'K', 'U', 'L', 0xba, 0xbe}

// Is reports whether a disk begins as one of LUKS does, of any version.
func Is(head []byte) bool { return bytes.HasPrefix(head, magic[:]) }

// binaryHeader is section 2.1 of the specification.
type binaryHeader struct {
	Magic       [6]byte
	Version     uint16
	Size        uint64
	Sequence    uint64
	Label       [48]byte
	ChecksumAlg [32]byte
	Salt        [64]byte
	UUID        [40]byte
	Subsystem   [48]byte
	Offset      uint64
	_           [184]byte
	Checksum    [64]byte
}

// checksumAt is where the checksum is in the header: it is computed with zeros there.
const checksumAt = 448

// metadata is section 3 of the specification.
type metadata struct {
	Keyslots map[string]keyslot `json:"keyslots"`
	Tokens   struct{}           `json:"tokens"`
	Segments map[string]segment `json:"segments"`
	Digests  map[string]digest  `json:"digests"`
	Config   config             `json:"config"`
}

type keyslot struct {
	Type    string `json:"type"`
	KeySize int    `json:"key_size"`
	AF      struct {
		Type    string `json:"type"`
		Stripes int    `json:"stripes"`
		Hash    string `json:"hash"`
	} `json:"af"`
	Area struct {
		Type       string `json:"type"`
		Offset     int64  `json:"offset,string"`
		Size       int64  `json:"size,string"`
		Encryption string `json:"encryption"`
		KeySize    int    `json:"key_size"`
	} `json:"area"`
	KDF kdf `json:"kdf"`
}

type segment struct {
	Type       string `json:"type"`
	Offset     int64  `json:"offset,string"`
	Size       string `json:"size"`
	IVTweak    string `json:"iv_tweak"`
	Encryption string `json:"encryption"`
	SectorSize int    `json:"sector_size"`
	Integrity  any    `json:"integrity,omitempty"`
}

type digest struct {
	Type       string   `json:"type"`
	Keyslots   []string `json:"keyslots"`
	Segments   []string `json:"segments"`
	Hash       string   `json:"hash"`
	Iterations int      `json:"iterations"`
	Salt       []byte   `json:"salt"`
	Digest     []byte   `json:"digest"`
}

type config struct {
	JSONSize     int64    `json:"json_size,string"`
	KeyslotsSize int64    `json:"keyslots_size,string"`
	Requirements *require `json:"requirements,omitempty"`
}

type require struct {
	Mandatory []string `json:"mandatory"`
}

// copyOf returns one copy of the header.
func copyOf(h binaryHeader, meta []byte) ([]byte, error) {
	if len(meta) >= headerSize-binarySize { // a zero ends it
		return nil, errors.New("the metadata does not fit")
	}
	data := make([]byte, headerSize)
	if _, err := binary.Encode(data, binary.BigEndian, &h); err != nil {
		return nil, err
	}
	copy(data[binarySize:], meta)
	sum := sha256.Sum256(data)
	copy(data[checksumAt:], sum[:])
	return data, nil
}

// read returns the metadata of the header's first copy. Whoever can write to the disk has written it.
func read(disk io.ReaderAt) (*metadata, error) {
	data := make([]byte, headerSize)
	if _, err := disk.ReadAt(data, 0); err != nil {
		return nil, err
	}
	var h binaryHeader
	if _, err := binary.Decode(data, binary.BigEndian, &h); err != nil {
		return nil, err
	}
	switch {
	case h.Magic != magic:
		return nil, errors.New("it is not encrypted with LUKS")
	case h.Version != 2:
		return nil, fmt.Errorf("it has LUKS version %d: want 2 (cryptsetup convert --type luks2)", h.Version)
	case h.Size != headerSize || string(bytes.TrimRight(h.ChecksumAlg[:], "\x00")) != "sha256":
		return nil, fmt.Errorf("a header of %d bytes with checksum %.32q: want %d and sha256", h.Size, h.ChecksumAlg, headerSize)
	}
	clear(data[checksumAt : checksumAt+len(h.Checksum)])
	if sum := sha256.Sum256(data); !bytes.Equal(sum[:], h.Checksum[:len(sum)]) {
		return nil, errors.New("the header is damaged, its checksum differs: cryptsetup repair takes the second copy")
	}
	meta := &metadata{}
	text, _, _ := bytes.Cut(data[binarySize:], []byte{0})
	if err := json.Unmarshal(text, meta); err != nil {
		return nil, fmt.Errorf("the header's metadata: %.200s", err.Error())
	}
	return meta, meta.check()
}

// check refuses by name what is not as [Format] or cryptsetup make it by default.
func (m *metadata) check() error {
	s, one := m.Segments["0"]
	switch {
	case m.Config.Requirements != nil && len(m.Config.Requirements.Mandatory) > 0:
		return fmt.Errorf("the header asks for %.200q, which is not there", strings.Join(m.Config.Requirements.Mandatory, " "))
	case len(m.Segments) != 1 || !one || s.Type != "crypt" || s.Size != "dynamic" || s.IVTweak != "0" || s.Integrity != nil:
		return errors.New("its data are not one segment of type crypt that goes to the end of the disk, without integrity")
	case s.Encryption != Cipher:
		return fmt.Errorf("cipher %.60q: want %s", s.Encryption, Cipher)
	case s.Offset < headerSize || s.Offset%maxSector != 0 || s.SectorSize != 512 && s.SectorSize != maxSector:
		return fmt.Errorf("data at byte %d in sectors of %d bytes: want a multiple of %d, and 512 or %d", s.Offset, s.SectorSize, maxSector, maxSector)
	}
	return nil
}
