// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// usage of a test program and of all processes that it waited for.
type spent struct {
	// Folder is that of the package: go test starts programs there.
	Folder string `json:"folder"`
	// Seconds of processor time, in user mode and in the kernel.
	Processor float64 `json:"processor"`
	// Elapsed seconds.
	Elapsed float64 `json:"elapsed"`
	// Peak is the resident memory of the largest process in KiB (getrusage(2)).
	Peak int64 `json:"peak"`
}

// run runs a program, adds what it took to a file, and returns its exit code.
func run(file string, args []string) int {
	begun := time.Now()
	runtime.LockOSThread() // Pdeathsig is about the thread that started the process
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// The program must not outlive this one, which go test kills.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "times:", err)
		return 1
	}
	go func() {
		for s := range signals {
			cmd.Process.Signal(s)
		}
	}()
	err := cmd.Wait()
	if err := add(file, begun); err != nil {
		fmt.Fprintln(os.Stderr, "times:", err)
		return 1
	}
	var ended *exec.ExitError
	if err == nil {
		return 0
	}
	if errors.As(err, &ended) && ended.ExitCode() > 0 {
		return ended.ExitCode()
	}
	fmt.Fprintln(os.Stderr, "times:", err)
	return 1
}

// add writes one line: O_APPEND keeps lines of programs that end together apart.
func add(file string, begun time.Time) error {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u); err != nil {
		return err
	}
	folder, err := os.Getwd()
	if err != nil {
		return err
	}
	line, err := json.Marshal(spent{folder, seconds(u.Utime) + seconds(u.Stime), time.Since(begun).Seconds(), u.Maxrss})
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Write(append(line, '\n'))
	return err
}

func seconds(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
