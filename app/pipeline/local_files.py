"""Files of this machine, without a process for each: Hadoop starts one to set permissions.

Hadoop sets the permissions of each file and folder that it makes. Without its native library, which
neither PySpark nor most machines have, it starts ``chmod`` for each, which takes milliseconds of
both cores; a write of a month's hours makes thousands. Java can do it itself. Spark brings the
compiler that makes a class of these lines.
"""

from collections.abc import Mapping
from typing import Any, Final

_OF_HADOOP: Final = "spark.hadoop."
_IMPLEMENTATION: Final = "fs.file.impl"

_NAME: Final = "quotas.LocalFiles"
_SOURCE: Final = """
package quotas;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public class LocalFiles extends LocalFileSystem {
  public LocalFiles() {
    super(new Raw());
  }

  public static class Raw extends RawLocalFileSystem {
    public void setPermission(Path path, FsPermission permission) throws IOException {
      String text = permission.getUserAction().SYMBOL
          + permission.getGroupAction().SYMBOL
          + permission.getOtherAction().SYMBOL;
      Files.setPosixFilePermissions(
          pathToFile(path).toPath(), PosixFilePermissions.fromString(text));
    }
  }
}
"""


def use_java_for_permissions(jvm: Any, settings: Mapping[str, str]) -> None:
    """Let Hadoop set the permissions of this machine's files by Java.

    Call it before Spark is started in a JVM: Hadoop has one object for all local files, and hands
    out what it made first. Its settings are those of then.

    Args:
        jvm: Of Spark on this machine alone.
        settings: Of Spark; where they name another implementation, it stays.
    """
    if f"{_OF_HADOOP}{_IMPLEMENTATION}" in settings:
        return
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(_SOURCE)
    hadoop = jvm.org.apache.hadoop.conf.Configuration()
    for name, value in settings.items():
        if name.startswith(_OF_HADOOP):
            hadoop.set(name.removeprefix(_OF_HADOOP), value)
    hadoop.setClassLoader(compiler.getClassLoader())
    hadoop.set(_IMPLEMENTATION, _NAME)
    jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI("file:///"), hadoop)
