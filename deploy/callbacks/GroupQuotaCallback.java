import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.server.quota.ClientQuotaCallback;
import org.apache.kafka.server.quota.ClientQuotaEntity;
import org.apache.kafka.server.quota.ClientQuotaType;

/**
 * Groups of users and client-ids, each of which shares what is stored for the user {@code group:<name>}.
 *
 * Who is in no group is judged by Kafka's rules. {@code client.quota.callback.groups.file} names a properties
 * file with a line for each member: {@code user.alice=ops}, {@code client-id.etl=batch}.
 */
public class GroupQuotaCallback implements ClientQuotaCallback {
    static final String FILE = "client.quota.callback.groups.file";
    private static final String GROUP = "group";

    private final Map<String, String> users = new HashMap<>();
    private final Map<String, String> clientIds = new HashMap<>();
    private final KafkaRules rules = new KafkaRules();

    @Override
    public void configure(Map<String, ?> configs) {
        Properties members = new Properties();
        Object file = configs.get(FILE);
        if (file == null) throw new ConfigException(FILE, null, "names no file");
        try (var reader = Files.newBufferedReader(Path.of(file.toString()), StandardCharsets.UTF_8)) {
            members.load(reader);
        } catch (IOException e) {
            throw new ConfigException(FILE, file, e.toString());
        }
        for (String member : members.stringPropertyNames()) {
            String group = members.getProperty(member).trim();
            if (member.startsWith("user.")) users.put(member.substring("user.".length()), group);
            else if (member.startsWith("client-id.")) clientIds.put(member.substring("client-id.".length()), group);
            else throw new ConfigException(FILE, file, member + " begins with neither user. nor client-id.");
        }
    }

    @Override
    public Map<String, String> quotaMetricTags(ClientQuotaType type, KafkaPrincipal principal, String clientId) {
        String group = users.getOrDefault(principal.getName(), clientIds.get(clientId));
        if (group != null) return Map.of(GROUP, group);
        return rules.tags(type, principal.getName(), clientId);
    }

    @Override
    public Double quotaLimit(ClientQuotaType type, Map<String, String> tags) {
        String group = tags.get(GROUP);
        return group == null ? rules.limit(type, tags) : rules.value(type, "group:" + group, null);
    }

    @Override
    public void updateQuota(ClientQuotaType type, ClientQuotaEntity entity, double value) {
        rules.update(type, entity, value);
    }

    @Override
    public void removeQuota(ClientQuotaType type, ClientQuotaEntity entity) {
        rules.update(type, entity, null);
    }

    @Override
    public boolean quotaResetRequired(ClientQuotaType type) {
        return false;
    }

    @Override
    public boolean updateClusterMetadata(Cluster cluster) {
        return false;
    }

    @Override
    public void close() { }
}
