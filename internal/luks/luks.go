// SPDX-License-Identifier: Apache-2.0

// Package luks writes and opens headers of LUKS2, the format in which Linux keeps encrypted disks (LUKS2 On-Disk
// Format Specification 1.1). The kernel encrypts; here are only the header and the key in it. Of the format it knows
// what cryptsetup makes by default, and limits what a header can ask for: the libraries that there are do not, or cannot write one.
package luks

import (
	"crypto/aes"
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"slices"

	"github.com/google/uuid"
	"golang.org/x/crypto/argon2"
	"golang.org/x/crypto/xts"
	"golang.org/x/sys/unix"
)

const (
	// Cipher is that of the data and of key slots, as dm-crypt knows it, with keys of KeySize bytes: two of AES-256.
	Cipher  = "aes-xts-plain64"
	KeySize = 64

	// areaSector is the unit in which a key slot is encrypted, in bytes.
	areaSector = 512
	// maxSector is that of the data, in bytes; dm-crypt has no larger one.
	maxSector = 4096
	// stripes is how often a key is split in its slot (section 3.2.1).
	stripes = 4000
	// areaSize is that of a key slot, a multiple of 4 KiB.
	areaSize = 63 * 4096
	// digestRounds is what is asked of a digest at least (PBKDF2). More would protect a random key of KeySize from nobody.
	digestRounds = 1000
)

// The second choice of RFC 9106, section 4, for less memory: 64 MiB, three passes, four lanes.
const argonMemory, argonPasses, argonLanes = 64 << 10, 3, 4

// What a header may ask for: whoever could write to the disk could ask for more than the machine has.
const (
	maxMemory = 256 << 10 // KiB
	maxPasses = 64
	maxLanes  = 16
	maxRounds = 50_000_000 // PBKDF2: about ten seconds
)

// ErrKey is of a key that opens none of the slots.
var ErrKey = errors.New("the key opens none of the key slots")

type kdf struct {
	Type       string `json:"type"`
	Salt       []byte `json:"salt"`
	Time       uint32 `json:"time,omitempty"`
	Memory     uint32 `json:"memory,omitempty"`
	CPUs       uint8  `json:"cpus,omitempty"`
	Hash       string `json:"hash,omitempty"`
	Iterations int    `json:"iterations,omitempty"`
}

// Volume is what the kernel has to know of an open disk.
type Volume struct {
	// Key is of KeySize bytes. The caller clears it.
	Key []byte
	// Offset is where the data begin, and Sector how they are divided, in bytes.
	Offset int64
	Sector int
}

// Format writes a header with a new random key, which passphrase opens. What the disk had is lost.
func Format(disk io.WriterAt, passphrase []byte) error {
	random := make([]byte, KeySize+3*32+2*64)
	defer clear(random)
	if err := read256(random); err != nil {
		return err
	}
	take := func(n int) (part []byte) { part, random = random[:n:n], random[n:]; return part }
	key, saltSlot, saltDigest, seed := take(KeySize), take(32), take(32), take(32)
	defer clear(key)

	slot := keyslot{Type: "luks2", KeySize: KeySize, KDF: kdf{Type: "argon2id", Salt: saltSlot, Time: argonPasses, Memory: argonMemory, CPUs: argonLanes}}
	slot.AF.Type, slot.AF.Stripes, slot.AF.Hash = "luks1", stripes, "sha256"
	slot.Area.Type, slot.Area.Offset, slot.Area.Size, slot.Area.Encryption, slot.Area.KeySize = "raw", areaOffset, areaSize, Cipher, KeySize
	sum, err := pbkdf2.Key(sha256.New, string(key), saltDigest, digestRounds, sha256.Size)
	if err != nil {
		return err
	}
	meta, err := json.Marshal(&metadata{
		Keyslots: map[string]keyslot{"0": slot},
		Segments: map[string]segment{"0": {Type: "crypt", Offset: DataOffset, Size: "dynamic", IVTweak: "0", Encryption: Cipher, SectorSize: maxSector}},
		Digests:  map[string]digest{"0": {Type: "pbkdf2", Keyslots: []string{"0"}, Segments: []string{"0"}, Hash: "sha256", Iterations: digestRounds, Salt: saltDigest, Digest: sum}},
		Config:   config{JSONSize: headerSize - binarySize, KeyslotsSize: DataOffset - areaOffset},
	})
	if err != nil {
		return err
	}
	area, err := slot.seal(key, passphrase)
	if err != nil {
		return err
	}
	defer clear(area)
	h := binaryHeader{Magic: magic, Version: 2, Size: headerSize, Sequence: 1, ChecksumAlg: [32]byte([]byte("sha256" + string(make([]byte, 26))))}
	id, err := uuid.FromBytes(seed[:16])
	if err != nil {
		return err
	}
	copy(h.UUID[:], id.String())
	copy(h.Salt[:], take(64))
	first, err := copyOf(h, meta)
	if err != nil {
		return err
	}
	h.Magic, h.Offset = magicSecond, headerSize
	copy(h.Salt[:], take(64))
	second, err := copyOf(h, meta)
	if err != nil {
		return err
	}
	for offset, data := range map[int64][]byte{0: first, headerSize: second, areaOffset: area} {
		if _, err := disk.WriteAt(data, offset); err != nil {
			return err
		}
	}
	return nil
}

// read256 fills a slice with random bytes of the kernel, which gives 256 at once whole (getrandom(2)). Those of
// crypto/rand may be from before a saved VM was restored.
func read256(to []byte) error {
	for part := range slices.Chunk(to, 256) {
		if _, err := unix.Getrandom(part, 0); err != nil {
			return fmt.Errorf("random bytes: %w", err)
		}
	}
	return nil
}

// Open returns what the kernel has to know, or an error that is [ErrKey].
func Open(disk io.ReaderAt, passphrase []byte) (*Volume, error) {
	meta, err := read(disk)
	if err != nil {
		return nil, err
	}
	err = ErrKey
	for _, name := range slices.Sorted(maps.Keys(meta.Keyslots)) {
		slot := meta.Keyslots[name]
		key, failed := slot.open(disk, passphrase)
		switch {
		case failed != nil:
			err = fmt.Errorf("key slot %.8q: %w", name, failed)
		case meta.verify(name, key):
			return &Volume{Key: key, Offset: meta.Segments["0"].Offset, Sector: meta.Segments["0"].SectorSize}, nil
		default:
			clear(key)
		}
	}
	return nil, err
}

// verify reports whether a key is the one that was put in a slot.
func (m *metadata) verify(slot string, key []byte) bool {
	for _, d := range m.Digests {
		if d.Type != "pbkdf2" || d.Iterations < 1 || d.Iterations > maxRounds || !slices.Contains(d.Keyslots, slot) || !slices.Contains(d.Segments, "0") {
			continue
		}
		newHash := hashOf(d.Hash)
		if newHash == nil || len(d.Digest) == 0 {
			continue
		}
		sum, err := pbkdf2.Key(newHash, string(key), d.Salt, d.Iterations, len(d.Digest))
		if err == nil && subtle.ConstantTimeCompare(sum, d.Digest) == 1 {
			return true
		}
	}
	return false
}

// hashOf returns nil for one that is not known.
func hashOf(name string) func() hash.Hash {
	switch name {
	case "sha256":
		return sha256.New
	case "sha512":
		return sha512.New
	}
	return nil
}

// derive returns the key with which the slot is encrypted.
func (s *keyslot) derive(passphrase []byte) (*xts.Cipher, error) {
	k := &s.KDF
	var key []byte
	switch {
	case k.Type == "argon2id" || k.Type == "argon2i":
		if k.Time < 1 || k.Time > maxPasses || k.CPUs < 1 || k.CPUs > maxLanes || k.Memory > maxMemory {
			return nil, fmt.Errorf("%s with %d MiB, %d passes, %d lanes: at most %d, %d and %d (cryptsetup luksConvertKey --pbkdf-memory %d)",
				k.Type, k.Memory>>10, k.Time, k.CPUs, maxMemory>>10, maxPasses, maxLanes, argonMemory)
		}
		derive := argon2.IDKey
		if k.Type == "argon2i" {
			derive = argon2.Key
		}
		key = derive(passphrase, k.Salt, k.Time, k.Memory, k.CPUs, KeySize)
	case k.Type == "pbkdf2" && hashOf(k.Hash) != nil && k.Iterations > 0 && k.Iterations <= maxRounds:
		var err error
		if key, err = pbkdf2.Key(hashOf(k.Hash), string(passphrase), k.Salt, k.Iterations, KeySize); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("key derivation %.40q with hash %.40q and %d iterations", k.Type, k.Hash, k.Iterations)
	}
	defer clear(key)
	return xts.NewCipher(aes.NewCipher, key)
}

// seal returns the slot's area with a key in it.
func (s *keyslot) seal(key, passphrase []byte) ([]byte, error) {
	cipher, err := s.derive(passphrase)
	if err != nil {
		return nil, err
	}
	area := make([]byte, areaSize)
	split := area[:stripes*len(key)]
	last := split[len(split)-len(key):]
	if err := read256(split[:len(split)-len(key)]); err != nil {
		return nil, err
	}
	sum := merge(split[:len(split)-len(key)], len(key), sha256.New)
	subtle.XORBytes(last, sum, key)
	clear(sum)
	for i, sector := range slices.Collect(slices.Chunk(area, areaSector)) {
		cipher.Encrypt(sector, sector, uint64(i))
	}
	return area, nil
}

// open returns the key in the slot, which is not verified yet.
func (s *keyslot) open(disk io.ReaderAt, passphrase []byte) ([]byte, error) {
	newHash := hashOf(s.AF.Hash)
	switch {
	case s.Type != "luks2" || s.KeySize != KeySize || s.AF.Type != "luks1" || s.AF.Stripes != stripes || newHash == nil:
		return nil, fmt.Errorf("type %.20q, a key of %d bytes, %.20q with %d stripes and %.20q: want luks2, %d, luks1, %d and sha256", s.Type, s.KeySize, s.AF.Type, s.AF.Stripes, s.AF.Hash, KeySize, stripes)
	case s.Area.Type != "raw" || s.Area.Encryption != Cipher || s.Area.KeySize != KeySize || s.Area.Offset < 0:
		return nil, fmt.Errorf("an area of type %.20q with cipher %.40q and a key of %d bytes: want raw, %s and %d", s.Area.Type, s.Area.Encryption, s.Area.KeySize, Cipher, KeySize)
	}
	cipher, err := s.derive(passphrase)
	if err != nil {
		return nil, err
	}
	split := make([]byte, stripes*KeySize)
	defer clear(split)
	if _, err := disk.ReadAt(split, s.Area.Offset); err != nil {
		return nil, err
	}
	for i, sector := range slices.Collect(slices.Chunk(split, areaSector)) {
		cipher.Decrypt(sector, sector, uint64(i))
	}
	last := split[len(split)-KeySize:]
	key := merge(split[:len(split)-KeySize], KeySize, newHash)
	subtle.XORBytes(key, key, last)
	return key, nil
}

// merge combines all stripes but the last one: each is added, and the sum diffused (section 3.2.1).
func merge(split []byte, size int, newHash func() hash.Hash) []byte {
	sum := make([]byte, size)
	for stripe := range slices.Chunk(split, size) {
		subtle.XORBytes(sum, sum, stripe)
		diffuse(sum, newHash())
	}
	return sum
}

// diffuse replaces each block, of the size of a hash, by the hash of its number and itself.
func diffuse(data []byte, h hash.Hash) {
	for i, block := range slices.Collect(slices.Chunk(data, h.Size())) {
		h.Reset()
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(i)))
		h.Write(block)
		copy(block, h.Sum(nil))
	}
}
