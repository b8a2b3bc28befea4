// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/internal/cli/record"
	"github.com/outrigger/outrigger/internal/peerpods/podclient"
	"github.com/outrigger/outrigger/internal/redact"
)

func (a *App) cpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "cp POD:PATH DEST | cp SOURCE POD:PATH", Short: "Copy files out of a pod or into it",
		Long: `Copy a file or folder out of a pod that runs, or into it, as docker does: into DEST if
that is a folder, else under that name; of SOURCE/. only what is in it. With - the
other side is a tar archive on standard input or output.

It runs the container's own tar, as root, so the image must have one. Files in the pod belong
to root. What comes out of a pod is written beneath DEST only, wherever links in it
point; devices and pipes are left out.`,
		Example: "  outrigger cp web:/var/log/app.log .\n  outrigger cp site/. web:/www",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, source := splitPodPath(args[0])
			to, dest := splitPodPath(args[1])
			if (from == "") == (to == "") {
				return errors.New("cp copies between a pod and this host: one of the two is POD:PATH")
			}
			pod, p, err := a.attach(cmd.Context(), from+to)
			if err != nil {
				return err
			}
			defer pod.Close()
			c := copier{a, pod, p}
			if to != "" {
				return c.in(cmd.Context(), source, dest)
			}
			return c.out(cmd.Context(), source, dest)
		},
	}
}

// splitPodPath parts POD:PATH. What begins with a slash or a dot is of this host.
func splitPodPath(text string) (pod, file string) {
	pod, file, of := strings.Cut(text, ":")
	if !of || strings.HasPrefix(text, "/") || strings.HasPrefix(text, ".") {
		return "", text
	}
	clean := path.Clean("/" + file)
	if strings.HasSuffix(file, "/.") && clean != "/" {
		clean += "/."
	}
	return pod, clean
}

// copier copies between one pod and this host.
type copier struct {
	app *App
	pod *podclient.Pod
	p   *record.Pod
}

// tar runs the container's tar with a stream of this host until both have ended.
func (c copier) tar(ctx context.Context, streams podclient.IO, args ...string) error {
	said := &bounded{}
	streams.Stderr = said
	code, err := c.app.execAsRoot(ctx, c.pod, c.p, append([]string{"tar"}, args...), streams)
	if code != 0 {
		why, _, _ := strings.Cut(said.String(), "\n") // then it says that there was an error
		err = fmt.Errorf("tar in pod %s ended with %d: %s", c.p.Name, code, redact.Line(strings.TrimPrefix(why, "tar: ")))
	}
	return err
}

// bounded keeps the beginning of what a guest says.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(data []byte) (int, error) {
	b.Buffer.Write(data[:min(len(data), max(0, 4096-b.Len()))])
	return len(data), nil
}

// isFolder asks the container.
func (c copier) isFolder(ctx context.Context, name string) (bool, error) {
	code, err := c.app.execAsRoot(ctx, c.pod, c.p, []string{"test", "-d", name}, podclient.IO{})
	return code == 0, err
}

// in copies a file or folder of this host into the pod.
func (c copier) in(ctx context.Context, source, dest string) error {
	dest = strings.TrimSuffix(dest, "/.")
	folder, err := c.isFolder(ctx, dest)
	if err != nil {
		return err
	}
	if source == "-" {
		if !folder {
			return fmt.Errorf("%s:%s is not a folder, which an archive needs", c.p.Name, dest)
		}
		return c.tar(ctx, podclient.IO{Stdin: c.app.Stdin}, "-xf", "-", "-C", dest)
	}
	into, name := dest, filepath.Base(source)
	switch {
	case !folder:
		into, name = path.Dir(dest), path.Base(dest)
	case strings.HasSuffix(source, "/."):
		name = "."
	}
	r, w := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := writeTar(w, source, name)
		w.CloseWithError(err)
		written <- err
	}()
	err = c.tar(ctx, podclient.IO{Stdin: r}, "-xf", "-", "-C", into)
	r.Close()
	if failed := <-written; failed != nil && !errors.Is(failed, io.ErrClosedPipe) {
		return failed
	}
	return err
}

// writeTar writes a file or folder of this host as root's, under another name.
func writeTar(out io.Writer, source, name string) error {
	w := tar.NewWriter(out)
	folder, top := filepath.Split(filepath.Clean(source))
	if info, err := os.Stat(source); err != nil {
		return err
	} else if info.IsDir() {
		folder, top = source, "."
	}
	root, err := os.OpenRoot(cmp.Or(folder, "."))
	if err != nil {
		return err
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), top, func(file string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(top, file)
		if err != nil {
			return err
		}
		return writeEntry(w, root, file, path.Join(name, rel))
	})
	if err != nil {
		return err // Close would say it again
	}
	return w.Close()
}

func writeEntry(w *tar.Writer, root *os.Root, file, name string) error {
	info, err := root.Lstat(file)
	if err != nil {
		return err
	}
	link := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if link, err = root.Readlink(file); err != nil {
			return err
		}
	} else if !info.IsDir() && !info.Mode().IsRegular() {
		return nil // sockets, pipes and devices are of this host
	}
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	h.Name, h.Uid, h.Gid, h.Uname, h.Gname = name, 0, 0, "", ""
	if err := w.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := root.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may have been replaced by a pipe
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err = io.CopyN(w, f, info.Size()); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// out copies a file or folder of the pod to this host.
func (c copier) out(ctx context.Context, source, dest string) error {
	content := strings.HasSuffix(source, "/.")
	source = path.Clean(source)
	from, base := path.Dir(source), path.Base(source)
	if content || source == "/" {
		from, base = source, "."
	}
	args := []string{"-cf", "-", "-C", from, base}
	if dest == "-" {
		if asTerminal(c.app.Stdout) != nil {
			return errors.New("an archive does not go to a terminal; send standard output to a file or another program")
		}
		return c.tar(ctx, podclient.IO{Stdout: c.app.Stdout}, args...)
	}
	if info, err := os.Stat(dest); err == nil && info.IsDir() {
		dest = filepath.Join(dest, base)
	} else if strings.HasSuffix(dest, "/") {
		return fmt.Errorf("%s is not a folder", dest)
	}
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		left, err := extract(tar.NewReader(r), base, dest)
		if left > 0 {
			fmt.Fprintf(c.app.Stderr, "outrigger: %d devices, pipes or the like were left out\n", left)
		}
		if err == nil {
			_, err = io.Copy(io.Discard, r) // what follows the archive's end
		}
		r.CloseWithError(err)
		done <- err
	}()
	err := c.tar(ctx, podclient.IO{Stdout: w}, args...)
	w.CloseWithError(err)
	if failed := <-done; failed != nil { // and so tar, whose output nobody took
		return redact.Error(failed, nil) // names of files are the guest's
	}
	return err
}

// extract writes the entries of an archive, which all are base or lie in it, to dest and beneath, and
// returns how many kinds of files it left out. The archive is the guest's: no link in it leads
// out of dest, since a folder is written through an [os.Root] of its own and a file is one entry.
func extract(in *tar.Reader, base, dest string) (left int, err error) {
	var root *os.Root
	for n := 0; ; n++ {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return left, nil
		}
		if err != nil {
			return left, err
		}
		rel, err := filepath.Rel(base, path.Clean(h.Name))
		if err != nil || !filepath.IsLocal(rel) || n == 0 && rel != "." || n > 0 && root == nil {
			return left, fmt.Errorf("the pod sent %q, which is not in %q", h.Name, base)
		}
		if n == 0 {
			if h.Typeflag != tar.TypeDir {
				parent, err := os.OpenRoot(filepath.Dir(dest))
				if err != nil {
					return left, err
				}
				defer parent.Close()
				err = extractEntry(parent, filepath.Base(dest), h, in, base, &left)
				return left, err
			}
			if root, err = folderRoot(dest); err != nil {
				return left, err
			}
			defer root.Close()
			continue
		}
		if err := extractEntry(root, rel, h, in, base, &left); err != nil {
			return left, err
		}
	}
}

func folderRoot(dest string) (*os.Root, error) {
	if err := os.Mkdir(dest, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return os.OpenRoot(dest)
}

func extractEntry(root *os.Root, name string, h *tar.Header, in io.Reader, base string, left *int) error {
	mode := h.FileInfo().Mode().Perm()
	switch h.Typeflag {
	case tar.TypeDir:
		if err := root.Mkdir(name, mode|0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	case tar.TypeReg:
		f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode|0o200)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, in)
		return errors.Join(err, f.Close())
	case tar.TypeSymlink:
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		of, err := filepath.Rel(base, path.Clean(h.Linkname))
		if err != nil {
			return err
		}
		return root.Link(of, name)
	default:
		*left++
	}
	return nil
}
