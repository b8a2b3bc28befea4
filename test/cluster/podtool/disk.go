// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// What compare does: so many turns for each folder, in a file of so many bytes.
const (
	turns      = 200
	fileBytes  = 32 << 20
	wholeBlock = 1 << 20
	smallBlock = 4 << 10
)

// way is one of those in which files are used: a turn is so many blocks, one behind the other or anywhere.
type way struct {
	name          string
	block, blocks int
	random        bool
	do            func(f *os.File, block []byte, at int64) (int, error)
}

var ways = []way{
	{"sequential-write", wholeBlock, 4, false, (*os.File).WriteAt},
	{"sequential-read", wholeBlock, 4, false, (*os.File).ReadAt},
	{"random-write", smallBlock, 16, true, (*os.File).WriteAt},
	{"random-read", smallBlock, 16, true, (*os.File).ReadAt},
}

// compare prints "WAY PERCENT MIB-PER-SECOND" for each way: medians of short turns of the two folders, since what else the machine
// does then slows both down alike. The page cache has no part in it.
func compare(first, second string) error {
	memory, err := unix.Mmap(-1, 0, wholeBlock, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON) // aligned, as O_DIRECT wants it
	if err != nil {
		return err
	}
	for i := range memory {
		memory[i] = byte(i)
	}
	var files [2]*os.File
	for i, folder := range []string{first, second} {
		if files[i], err = os.OpenFile(filepath.Join(folder, "file"), os.O_RDWR|os.O_CREATE|unix.O_DIRECT, 0o600); err != nil {
			return err
		}
		defer files[i].Close()
		for at := range int64(fileBytes / wholeBlock) { // it has its blocks from here on
			if _, err := files[i].WriteAt(memory, at*wholeBlock); err != nil {
				return err
			}
		}
	}
	for _, w := range ways {
		var took [2][]time.Duration
		for turn := range turns {
			for n := range 2 {
				i := (turn + n) % 2
				d, err := w.turn(files[i], memory, turn)
				if err != nil {
					return fmt.Errorf("%s: %w", w.name, err)
				}
				took[i] = append(took[i], d)
			}
		}
		for i := range took {
			slices.Sort(took[i])
		}
		ours, theirs := took[0][turns/2].Seconds(), took[1][turns/2].Seconds()
		fmt.Printf("%s %.1f %.1f\n", w.name, 100*theirs/ours, float64(w.block*w.blocks)/(1<<20)/ours)
	}
	return nil
}

// turn uses the file in one way, in both files at the same places, and returns how long it took until the disk had it.
func (w way) turn(f *os.File, memory []byte, turn int) (time.Duration, error) {
	random, all := rand.New(rand.NewPCG(1, uint64(turn))), fileBytes/w.block
	began := time.Now()
	for i := range w.blocks {
		at := (turn*w.blocks + i) % all
		if w.random {
			at = random.IntN(all)
		}
		if n, err := w.do(f, memory[:w.block], int64(at)*int64(w.block)); err != nil || n != w.block {
			return 0, errors.Join(err, fmt.Errorf("%d of %d bytes", n, w.block))
		}
	}
	err := f.Sync()
	return time.Since(began), err
}
