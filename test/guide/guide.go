// SPDX-License-Identifier: Apache-2.0

// Package guide runs the commands of a document, so that it stays true.
//
// Blocks fenced as sh run one after the other in one shell that ends with the
// first command that fails. A block fenced as "sh fails" is one that must fail,
// and one fenced as "sh long" (or "sh long fails") takes long: [Short] leaves it out.
// A block fenced as output, right after one of these, holds lines that its
// output must have; "…" in such a line stands for anything. Other blocks, such
// as console, are for reading only.
package guide

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Block is one fenced block of commands.
type Block struct {
	// Line is where it starts in the document, from 1.
	Line  int
	Code  string
	Fails bool
	// Long says that it takes minutes.
	Long bool
	// Output are lines that it must print.
	Output []string
}

// Parse returns the blocks of commands of a document.
func Parse(document string) ([]Block, error) {
	var blocks []Block
	var kind string
	var body []string
	start := 0
	for i, line := range strings.Split(document, "\n") {
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && start == 0:
			kind, body, start = fence, nil, i+2
		case isFence:
			var err error
			if blocks, err = add(blocks, kind, body, start); err != nil {
				return nil, err
			}
			start = 0
		case start > 0:
			body = append(body, line)
		}
	}
	if start > 0 {
		return nil, fmt.Errorf("line %d: the block has no end", start-1)
	}
	return blocks, nil
}

func add(blocks []Block, kind string, body []string, start int) ([]Block, error) {
	switch kind {
	case "sh", "sh fails", "sh long", "sh long fails":
		return append(blocks, Block{
			Line: start, Code: strings.Join(body, "\n"),
			Fails: strings.HasSuffix(kind, " fails"), Long: strings.HasPrefix(kind, "sh long"),
		}), nil
	case "output":
		if len(blocks) == 0 {
			return nil, fmt.Errorf("line %d: output of no command", start)
		}
		blocks[len(blocks)-1].Output = body
	}
	return blocks, nil
}

// Short returns the blocks that do not take long.
func Short(blocks []Block) []Block {
	return slices.DeleteFunc(slices.Clone(blocks), func(b Block) bool { return b.Long })
}

// marker begins the line that the shell prints before each block.
const marker = "=== block "

// script is what the shell runs.
func script(blocks []Block) string {
	var s strings.Builder
	s.WriteString("set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT\n")
	for i, b := range blocks {
		fmt.Fprintf(&s, "printf '\\n%s%d after %%d s\\n' $SECONDS\n", marker, i)
		if b.Fails {
			fmt.Fprintf(&s, "if (\n%s\n); then echo 'it succeeded and must fail'; exit 1; fi\n", b.Code)
		} else {
			s.WriteString(b.Code + "\n")
		}
	}
	return s.String()
}

// stop is how long a shell may take to end what runs in the background.
const stop = 10 * time.Second

// Run runs the blocks with that environment in the folder dir. The error has
// the line and the output of the block that went wrong.
func Run(ctx context.Context, dir string, env []string, blocks []Block) error {
	file := filepath.Join(dir, ".guide.log")
	log, err := os.Create(file)
	if err != nil {
		return err
	}
	defer os.Remove(file)
	defer log.Close()
	shell := exec.CommandContext(ctx, "bash", "-c", script(blocks))
	shell.Dir, shell.Env, shell.Stdout, shell.Stderr = dir, env, log, log
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	shell.Cancel = func() error { return syscall.Kill(-shell.Process.Pid, syscall.SIGTERM) }
	shell.WaitDelay = stop
	failed := shell.Run()
	text, err := os.ReadFile(file)
	if err != nil {
		return errors.Join(failed, err)
	}
	return judge(blocks, string(text), failed)
}

// judge looks at the output of each block that ran.
func judge(blocks []Block, text string, failed error) error {
	outputs := strings.Split(text, "\n"+marker)[1:]
	for i, output := range outputs {
		if i == len(outputs)-1 && failed != nil {
			return fmt.Errorf("line %d: %w\n%s\n--- printed:\n%s", blocks[i].Line, failed, blocks[i].Code, output)
		}
		for _, line := range blocks[i].Output {
			if !has(output, line) {
				return fmt.Errorf("line %d: the output lacks %q\n%s\n--- printed:\n%s", blocks[i].Line, line, blocks[i].Code, output)
			}
		}
	}
	return failed
}

// has reports whether a line of text is like pattern.
func has(text, pattern string) bool {
	for line := range strings.SplitSeq(text, "\n") {
		if like(strings.TrimSpace(line), strings.TrimSpace(pattern)) {
			return true
		}
	}
	return false
}

func like(line, pattern string) bool {
	parts := strings.Split(pattern, "…")
	rest, ok := strings.CutPrefix(line, parts[0])
	for _, part := range parts[1:] {
		at := strings.Index(rest, part)
		if !ok || at < 0 {
			return false
		}
		rest = rest[at+len(part):]
	}
	last := parts[len(parts)-1]
	return ok && (rest == "" || len(parts) > 1 && strings.HasSuffix(line, last))
}
