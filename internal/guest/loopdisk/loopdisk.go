// SPDX-License-Identifier: Apache-2.0

// Package loopdisk is what provider docker has a container of its own do with a disk: a file in a volume of the
// engine, named by the disk's serial number, which the instance sees as a loop device.
package loopdisk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/blockdevice"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// Arg makes podvm-init this program. What follows is "make SERIAL BYTES [SOURCE]" or "hold SERIAL INSTANCE".
const Arg = "--disk"

// Where the container has the disk's volume, and that of the one which it is a copy of.
const (
	folder       = "/disk"
	sourceFolder = "/source"
)

// Exit codes besides 0. The last line of output says why, and no loop device is held.
const (
	exitFailed = 1
	exitInUse  = 3
	exitFull   = 4
)

const (
	pause = 50 * time.Millisecond
	// copies is how often a disk is copied that is written to meanwhile.
	copies = 10
)

var errInUse = errors.New("in use")

// Main runs the program with what follows [Arg] and does not return.
func Main(args []string) {
	err := run(args)
	if err != nil {
		fmt.Println(err)
	}
	switch {
	case err == nil:
		os.Exit(0)
	case errors.Is(err, errInUse):
		os.Exit(exitInUse)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EFBIG), errors.Is(err, unix.EDQUOT):
		os.Exit(exitFull)
	}
	os.Exit(exitFailed)
}

func run(args []string) error {
	d := disk{folder: folder, sys: "/sys", dev: "/dev", lingers: 10 * time.Second}
	switch {
	case len(args) == 3 && args[0] == "hold":
		return d.hold(args[1], args[2])
	case (len(args) == 3 || len(args) == 4) && args[0] == "make":
		bytes, err := strconv.ParseInt(args[2], 10, 64)
		if err != nil {
			return err
		}
		source := ""
		if len(args) == 4 {
			source = filepath.Join(sourceFolder, args[3])
		}
		return d.make(args[1], bytes, source)
	}
	return fmt.Errorf("%q is not make SERIAL BYTES [SOURCE] or hold SERIAL INSTANCE", args)
}

type disk struct {
	folder, sys, dev string
	// lingers is how long a loop device of an instance that is gone may need to end.
	lingers time.Duration
}

// make makes the file if there is none, makes it at least so large, and says how large it is. An instance that has it sees that.
func (d disk) make(serial string, bytes int64, source string) error {
	path := filepath.Join(d.folder, serial)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		err = d.fill(path+".part", bytes, source)
		if err == nil {
			err = os.Rename(path+".part", path)
		}
		if err != nil {
			return err
		}
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := grow(file, bytes); err != nil {
		return err
	}
	dir, err := os.Open(d.folder)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil {
		return err
	}
	for _, loop := range blockdevice.Find(d.sys, d.dev, serial) {
		if err := blockdevice.RescanLoop(loop); err != nil {
			return err
		}
	}
	end, err := file.Seek(0, io.SeekEnd)
	fmt.Println(end)
	return err
}

// fill makes a file that is complete when it gets its name.
func (d disk) fill(path string, bytes int64, source string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if source != "" {
		if err := d.copy(source, file); err != nil {
			return err
		}
	}
	return grow(file, bytes)
}

func grow(file *os.File, bytes int64) error {
	info, err := file.Stat()
	if err == nil && info.Size() < bytes {
		err = file.Truncate(bytes)
	}
	return errors.Join(err, file.Sync())
}

// copy copies a disk as it is at one time: while it was copied, nothing was written to it. What the instance's kernel has not
// written yet is not in it.
func (d disk) copy(source string, target *os.File) error {
	from, err := os.Open(source)
	if err != nil {
		return err
	}
	defer from.Close()
	if blockdevice.CloneFile(from, target) {
		return nil
	}
	for range copies {
		before := d.writes(from)
		if err := errors.Join(target.Truncate(0), blockdevice.CopySparse(context.Background(), from, target)); err != nil {
			return err
		}
		if before == d.writes(from) {
			return nil
		}
		time.Sleep(pause)
	}
	return fmt.Errorf("it was written to during each of %d copies: copy it when its pod writes less, or have the engine on a file system that can clone files (XFS, Btrfs)", copies)
}

// writes returns what is different when a disk was written to meanwhile: when its file has changed, how many writes and discards
// have ended (Documentation/block/stat.rst of Linux), and the time while some are under way.
func (d disk) writes(file *os.File) (text string) {
	if info, err := file.Stat(); err == nil {
		text = info.ModTime().String()
	}
	for _, loop := range blockdevice.Find(d.sys, d.dev, filepath.Base(file.Name())) {
		stat, _ := os.ReadFile(filepath.Join(d.sys, "block", filepath.Base(loop), "stat"))
		inflight, _ := os.ReadFile(filepath.Join(d.sys, "block", filepath.Base(loop), "inflight"))
		done, now := strings.Fields(string(stat)), strings.Fields(string(inflight))
		if len(done) > 11 && len(now) > 1 && now[1] == "0" {
			text += " " + done[4] + " " + done[11]
		} else {
			text += time.Now().String()
		}
	}
	return text
}

// hold has a loop device over the file until it is told to end, and ends when there is none any more: not before the instance has
// unmounted it.
func (d disk) hold(serial, instance string) error {
	ending := make(chan os.Signal, 1)
	signal.Notify(ending, syscall.SIGTERM)
	loop, err := d.take(serial, instance)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	<-ending
	fmt.Println("ending")
	if err := loop.Close(); err != nil {
		return err
	}
	for len(blockdevice.Find(d.sys, d.dev, serial)) > 0 {
		time.Sleep(pause)
	}
	return nil
}

// take returns the loop device over the file: one that the instance has already, since a second over the same file would not
// see what is written to the first.
func (d disk) take(serial, instance string) (loop *os.File, err error) {
	name := instance[:min(len(instance), unix.LO_NAME_SIZE-1)]
	ctx, cancel := context.WithTimeout(context.Background(), d.lingers)
	defer cancel()
	other := ""
	err = poll.Pace{First: pause, Max: pause}.Until(ctx, func() (bool, error) {
		found := blockdevice.Find(d.sys, d.dev, serial)
		if len(found) == 0 {
			file, err := os.OpenFile(filepath.Join(d.folder, serial), os.O_RDWR, 0)
			if err != nil {
				return true, err
			}
			defer file.Close()
			loop, err = blockdevice.Loop(d.sys, d.dev, file, name)
			return true, err
		}
		if loop, err = os.OpenFile(found[0], os.O_RDWR, 0); err == nil {
			if other, err = blockdevice.LoopName(loop); err == nil && other == name {
				return true, nil
			}
			loop.Close()
		}
		return false, nil // it is ending
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %s has it still", errInUse, other)
	}
	return loop, err
}
