// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/outrigger/outrigger/internal/localnet/statefile"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// Agent works on the machine whose file system is at Root.
type Agent struct {
	Root string
	Log  *slog.Logger
	// Output receives the output of services, and Commands that of the
	// bootstrap's commands.
	Output, Commands io.Writer
	// Secrets, if any, collects the secrets in the bootstrap data.
	Secrets *Secrets
	// Run runs a command; nil starts a program.
	Run func(ctx context.Context, argv []string) error
	// Wait is how often it polls for files from elsewhere.
	Wait poll.Pace
}

// step is a part of the bootstrap. Its name appears in conditions and logs.
type step struct {
	name string
	do   func(context.Context) error
	// resumable steps are simply run again when they were interrupted; after others
	// the image may need a reset.
	resumable bool
}

// Bootstrap waits for the machine's seed and runs the bootstrap, resuming an
// interrupted attempt. A failure is recorded in the journal: an error means
// that the journal could not be written, or that ctx has ended.
func (a *Agent) Bootstrap(ctx context.Context) (State, error) {
	seed, data, state, err := a.awaitSeed(ctx)
	if err == nil && state.Phase == PhaseDone {
		return state, a.forget() // it may have been killed before that
	}
	if err != nil || state.Phase == PhaseFailed {
		return state, err
	}
	plan, err := Parse(data, seed)
	if err != nil {
		state.Phase, state.Message = PhaseFailed, err.Error()
		return state, a.store(state)
	}
	if a.Secrets == nil {
		a.Secrets = &Secrets{}
	}
	a.Secrets.learn(plan)
	plan.leaveOutUnfit()
	plan.leaveOutConntrack()
	steps := a.steps(plan, seed)
	state.Ignored, state.Total = plan.Ignored, len(steps)
	if err := a.awaitNeeds(ctx); err != nil {
		return state, err
	}
	if state, err = a.recover(ctx, state, steps); err != nil {
		return state, err
	}
	return a.run(ctx, state, steps)
}

// awaitNeeds waits for the files that the image requires before a bootstrap.
func (a *Agent) awaitNeeds(ctx context.Context) error {
	settings, err := a.settings()
	if err != nil {
		return err
	}
	return a.Wait.Until(ctx, func() (bool, error) { return a.has(settings.Needs), nil })
}

// awaitSeed waits for the seed and the bootstrap data that the manager copies in, and
// reads the journal. It does not read them if the bootstrap is done or has failed.
func (a *Agent) awaitSeed(ctx context.Context) (seed Seed, data []byte, state State, err error) {
	err = a.Wait.Until(ctx, func() (bool, error) {
		err := readIfThere(inDir(a.Root, StateFile), &state)
		if err != nil || state.Phase == PhaseDone || state.Phase == PhaseFailed {
			return true, err
		}
		err = statefile.Read(inDir(a.Root, SeedFile), &seed) // the manager copies it last
		if errors.Is(err, os.ErrNotExist) {
			return false, nil
		}
		if err == nil {
			data, err = os.ReadFile(inDir(a.Root, UserDataFile))
		}
		return true, err
	})
	if state.UserData == "" && err == nil {
		state = State{Phase: PhaseRunning, UserData: fmt.Sprintf("%x", sha256.Sum256(data))}
	}
	return seed, data, state, err
}

// recover continues after a step was interrupted: with that step, or from the
// beginning, after a reset, if the image has a reset command.
func (a *Agent) recover(ctx context.Context, state State, steps []step) (State, error) {
	if state.Step == "" || state.Done >= len(steps) || steps[state.Done].name != state.Step || steps[state.Done].resumable {
		return state, nil
	}
	settings, err := a.settings()
	if err != nil || len(settings.Reset) == 0 {
		return state, err
	}
	a.Log.Warn("a step was interrupted; starting over", "step", state.Step)
	if err := a.command(ctx, settings.Reset); err != nil {
		return state, fmt.Errorf("reset after an interruption: %w", err)
	}
	state.Done, state.Step = 0, ""
	return state, a.store(state)
}

func (a *Agent) run(ctx context.Context, state State, steps []step) (State, error) {
	for state.Done < len(steps) {
		next := steps[state.Done]
		state.Step = next.name
		if err := a.store(state); err != nil {
			return state, err
		}
		a.Log.Info("step", "step", next.name, "of", len(steps))
		err := next.do(ctx)
		if ctx.Err() != nil {
			return state, context.Cause(ctx) // interrupted, which is not a failure
		}
		if err != nil {
			// An error may quote the program's name, which may be a whole line.
			state.Phase, state.Message = PhaseFailed, a.Secrets.hide(fmt.Sprintf("%s: %v", next.name, err), true)
			a.Log.Error("bootstrap has failed", "reason", state.Message)
			return state, a.store(state)
		}
		state.Done++
	}
	state.Phase, state.Step = PhaseDone, ""
	if err := a.store(state); err != nil {
		return state, err
	}
	a.Log.Info("bootstrap is done", "steps", len(steps))
	return state, a.forget()
}

// forget removes the bootstrap data, which holds secrets.
func (a *Agent) forget() error {
	if err := os.Remove(inDir(a.Root, UserDataFile)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func (a *Agent) steps(p *Plan, seed Seed) []step {
	var list []step
	commands := func(key string, all [][]string) {
		for i, argv := range all {
			list = append(list, step{name: key + "/" + strconv.Itoa(i), do: func(ctx context.Context) error { return a.command(ctx, argv) }})
		}
	}
	commands("bootcmd", p.Early)
	if len(p.Files) > 0 {
		list = append(list, step{name: "write-files", resumable: true, do: func(context.Context) error { return a.writeAll(p.Files) }})
	}
	for i := range seed.Images {
		list = append(list, step{name: "images/" + strconv.Itoa(i), resumable: true, do: func(ctx context.Context) error { return a.importImage(ctx, i) }})
	}
	commands("runcmd", p.Commands)
	return list
}

func (a *Agent) writeAll(files []File) error {
	for _, f := range files {
		if err := f.write(a.Root); err != nil {
			return fmt.Errorf("write %s: %w", f.Path, err)
		}
	}
	return nil
}

// importLimit is how long the import of an image may fail.
const importLimit = 3 * time.Minute

func (a *Agent) importImage(ctx context.Context, i int) error {
	settings, err := a.settings()
	if err != nil {
		return err
	}
	if len(settings.ImportImage) == 0 {
		return fmt.Errorf("%s/settings.json of the node image has no importImage: it takes no images", ConfigDir)
	}
	base := inDir(a.Root, filepath.Join(ImagesDir, strconv.Itoa(i)))
	err = a.Wait.Until(ctx, func() (bool, error) {
		_, err := os.Stat(base + ".ready")
		if errors.Is(err, os.ErrNotExist) {
			return false, nil
		}
		return true, err
	})
	if err != nil {
		return err
	}
	deadline := time.Now().Add(importLimit)
	err = a.Wait.Until(ctx, func() (bool, error) {
		err := a.command(ctx, append(slices.Clip(settings.ImportImage), base+".tar"))
		if err != nil && time.Now().Before(deadline) {
			return false, nil
		}
		return true, err
	})
	if err != nil {
		return err
	}
	return os.Remove(base + ".tar")
}

func (a *Agent) command(ctx context.Context, argv []string) error {
	if a.Run != nil {
		return a.Run(ctx, argv)
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = a.Commands, a.Commands
	cmd.WaitDelay = time.Second // a background process may keep the output open
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return err
	}
	return nil
}

func (a *Agent) settings() (Settings, error) {
	var s Settings
	err := readIfThere(filepath.Join(a.Root, ConfigDir, "settings.json"), &s)
	if err != nil {
		err = fmt.Errorf("%s/settings.json: %w", ConfigDir, err)
	}
	return s, err
}

func readIfThere(path string, v any) error {
	if err := statefile.Read(path, v); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func (a *Agent) store(s State) error { return statefile.Write(inDir(a.Root, StateFile), s) }
