package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/apk"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	"github.com/goreleaser/nfpm/v2/rpm"
)

const (
	homepage   = "https://github.com/weirlimit/weir"
	maintainer = "Weir <weirlimit@users.noreply.github.com>"

	summary = "Rate-limiting edge for HTTP APIs"
)

// about is the description of the packages, by paragraphs.
var about = []string{
	`Weir counts requests by address, API key, session or certificate, refuses what
is over a limit, and tells every caller where it stands. It runs before an HTTP
API as a gateway, answers a proxy such as nginx or Envoy, or shares its counts
between nodes in Redis.`,
	`The package neither enables nor starts the service: the backend that it is to
protect is named in /etc/weir/weir.yaml first.`,
}

// A format is one kind of package.
type format struct {
	suffix     string
	packager   nfpm.Packager
	zsh        string                                // the directory of zsh's completions
	scripts    func(*nfpm.Info, func(string) string) // given the path of an own file
	documents  func(*texts, version, time.Time) ([]file, error)
	compressed func(*nfpm.Info)
	described  func(*nfpm.Info)
}

var formats = []format{
	{
		suffix: "deb", packager: deb.Default, zsh: "/usr/share/zsh/vendor-completions", documents: debianDocuments,
		scripts: func(i *nfpm.Info, own func(string) string) {
			i.Scripts = nfpm.Scripts{PostInstall: own("deb.postinst"), PreRemove: own("deb.prerm"), PostRemove: own("deb.postrm")}
			i.Depends = []string{"adduser"}
			i.Recommends = []string{"ca-certificates"}
		},
		compressed: func(i *nfpm.Info) { i.Deb.Compression = "gzip:9" },
		// Debian's policy: the first line has no capital, and a line with a dot is an empty one.
		described: func(i *nfpm.Info) {
			i.Description = "r" + summary[1:] + "\n" + strings.Join(about, "\n.\n")
		},
	},
	{
		suffix: "rpm", packager: rpm.DefaultRPM, zsh: "/usr/share/zsh/site-functions", documents: plainDocuments,
		scripts: func(i *nfpm.Info, own func(string) string) {
			i.Scripts = nfpm.Scripts{PreInstall: own("rpm.pre"), PostInstall: own("rpm.post"), PreRemove: own("rpm.preun"), PostRemove: own("rpm.postun")}
			i.Depends = []string{"shadow-utils"}
		},
		// Without BuildHost the name of the machine would be in it.
		compressed: func(i *nfpm.Info) { i.RPM.Compression, i.RPM.BuildHost = "zstd", "localhost" },
		described:  func(i *nfpm.Info) { i.RPM.Summary, i.Description = summary, strings.Join(about, "\n\n") },
	},
	{
		suffix: "apk", packager: apk.Default, zsh: "/usr/share/zsh/site-functions", documents: plainDocuments,
		scripts: func(i *nfpm.Info, own func(string) string) {
			i.Scripts = nfpm.Scripts{PreInstall: own("apk.pre-install"), PreRemove: own("apk.pre-deinstall")}
			i.APK.Scripts.PostUpgrade = own("apk.post-upgrade")
		},
		compressed: func(*nfpm.Info) {},
		described:  func(i *nfpm.Info) { i.Description = summary }, // apk shows one line
	},
}

// writePackages writes a package of each format.
func writePackages(p program, t *texts, out string) error {
	dir, err := os.MkdirTemp("", "weir-package-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, f := range formats {
		info, err := describe(p, t, f, filepath.Join(dir, f.suffix))
		if err != nil {
			return fmt.Errorf("%s of %s: %w", f.suffix, p, err)
		}
		target, err := os.Create(filepath.Join(out, f.packager.ConventionalFileName(info)))
		if err != nil {
			return err
		}
		defer target.Close()
		if err := f.packager.Package(info, target); err != nil {
			return fmt.Errorf("%s of %s: %w", f.suffix, p, err)
		}
		if err := target.Close(); err != nil {
			return err
		}
	}
	return nil
}

// describe says what is in a package. It writes what is not a file yet into dir.
func describe(p program, t *texts, f format, dir string) (*nfpm.Info, error) {
	info := &nfpm.Info{
		Name: "weir", Arch: p.Arch, Platform: "linux", Version: p.Version.Number, Prerelease: p.Version.Prerelease, VersionSchema: "semver", Release: "1",
		Section: "web", Priority: "optional", Maintainer: maintainer, Vendor: "Weir", Homepage: homepage, License: "Apache-2.0",
		DisableGlobbing: true, MTime: p.Date,
	}
	info.Umask = 0o022
	f.compressed(info)
	f.described(info)
	b := &contents{dir: dir, at: p.Date, info: info}
	f.scripts(info, func(name string) string { return b.write("scripts/"+name, t.own(name), 0o755) })

	info.Contents = append(info.Contents, b.entry("/usr/bin/weir", p.Path, files.TypeFile, 0o755))
	b.add("/etc/weir/policy.yaml", files.TypeConfigNoReplace, t.policy)
	b.add("/etc/weir/weir.yaml", files.TypeConfigNoReplace, t.own("weir.yaml"))
	if f.suffix == "apk" { // Alpine has OpenRC, which keeps no log
		b.program("/etc/init.d/weir", t.own("weir.initd"))
		b.add("/etc/logrotate.d/weir", files.TypeConfigNoReplace, t.own("weir.logrotate"))
	} else {
		for _, unit := range units {
			b.add("/usr/lib/systemd/system/"+unit, files.TypeFile, t.own(unit))
		}
	}
	b.add("/usr/share/bash-completion/completions/weir", files.TypeFile, t.bash)
	b.add(f.zsh+"/_weir", files.TypeFile, t.zsh)
	b.add("/usr/share/fish/vendor_completions.d/weir.fish", files.TypeFile, t.fish)
	for _, m := range t.manuals {
		b.add("/usr/share/man/man1/"+m.Name+".gz", f.kind(files.TypeRPMDoc), gzipped(m.Content))
	}
	documents, err := f.documents(t, p.Version, p.Date)
	if err != nil {
		return nil, err
	}
	for _, d := range documents {
		kind := f.kind(files.TypeRPMDoc)
		if strings.HasPrefix(path.Base(d.Name), "LICENSE") {
			kind = f.kind(files.TypeRPMLicense)
		}
		b.add(d.Name, kind, d.Content)
	}
	if f.suffix == "rpm" { // the others own the directories of their files anyway
		for _, dir := range []string{"/etc/weir", "/usr/share/doc/weir"} {
			info.Contents = append(info.Contents, b.entry(dir, "", files.TypeDir, 0o755))
		}
	}
	if b.err != nil {
		return nil, b.err
	}
	return nfpm.WithDefaults(info), nil
}

// kind returns the kind of a file that only an rpm tells from others.
func (f format) kind(rpm string) string {
	if f.suffix == "rpm" {
		return rpm
	}
	return files.TypeFile
}

// contents collects the contents of a package.
type contents struct {
	dir  string
	at   time.Time
	info *nfpm.Info
	err  error // the first
}

func (c *contents) add(destination, kind string, content []byte) {
	c.info.Contents = append(c.info.Contents, c.entry(destination, c.write(destination, content, 0o644), kind, 0o644))
}

// program adds what may be executed.
func (c *contents) program(destination string, content []byte) {
	c.info.Contents = append(c.info.Contents, c.entry(destination, c.write(destination, content, 0o755), files.TypeFile, 0o755))
}

func (c *contents) entry(destination, source, kind string, mode fs.FileMode) *files.Content {
	return &files.Content{Source: source, Destination: destination, Type: kind,
		FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: c.at}}
}

func (c *contents) write(name string, content []byte, mode fs.FileMode) string {
	p := filepath.Join(c.dir, filepath.FromSlash(path.Clean("/"+name)))
	if c.err == nil {
		c.err = os.MkdirAll(filepath.Dir(p), 0o755)
	}
	if c.err == nil {
		c.err = os.WriteFile(p, content, mode)
	}
	if c.err == nil {
		c.err = os.Chtimes(p, c.at, c.at) // the apk has the times of its scripts
	}
	return p
}

// debianDocuments are those that Debian's policy asks for.
func debianDocuments(t *texts, v version, at time.Time) ([]file, error) {
	changes := fmt.Sprintf("weir (%s) unstable; urgency=medium\n\n  * Version %s. What changed is in changelog.gz.\n\n -- %s  %s\n",
		debianVersion(v), v, maintainer, at.UTC().Format(time.RFC1123Z))
	const dir = "/usr/share/doc/weir/"
	return []file{
		{Name: dir + "copyright", Content: t.own("copyright")},
		{Name: dir + "LICENSES.txt.gz", Content: gzipped(t.document("LICENSES.txt"))},
		{Name: dir + "changelog.Debian.gz", Content: gzipped([]byte(changes))},
		{Name: dir + "changelog.gz", Content: gzipped(t.document("CHANGELOG.md"))},
		{Name: "/usr/share/lintian/overrides/weir", Content: t.own("lintian-overrides")},
	}, nil
}

func debianVersion(v version) string {
	if v.Prerelease == "" {
		return v.Number + "-1"
	}
	return v.Number + "~" + v.Prerelease + "-1"
}

func plainDocuments(t *texts, _ version, _ time.Time) ([]file, error) {
	var list []file
	for _, d := range t.documents {
		list = append(list, file{Name: "/usr/share/doc/weir/" + d.Name, Content: d.Content})
	}
	return list, nil
}

// gzipped is what gzip -9n makes of b: without a name and a time.
func gzipped(b []byte) []byte {
	var z bytes.Buffer
	w, _ := gzip.NewWriterLevel(&z, gzip.BestCompression) // the level exists
	w.Header.OS = 3                                       // Unix, as gzip writes it
	_, _ = w.Write(b)                                     // a bytes.Buffer does not fail
	_ = w.Close()
	return z.Bytes()
}
