import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Sanitizer;
import org.apache.kafka.server.quota.ClientQuotaCallback;
import org.apache.kafka.server.quota.ClientQuotaEntity;
import org.apache.kafka.server.quota.ClientQuotaType;

/**
 * A stored limit is what all brokers together allow: each allows its share of the leaders of a client's topics.
 *
 * {@code client.quota.callback.topics.file} names a properties file with a line for each client:
 * {@code user.alice=orders,bills}, {@code client-id.etl=bills}. Who is not listed is judged by Kafka's rules.
 */
public class PartitionShareQuotaCallback implements ClientQuotaCallback {
    static final String FILE = "client.quota.callback.topics.file";

    private final Map<String, List<String>> users = new HashMap<>();
    private final Map<String, List<String>> clientIds = new HashMap<>();
    private final KafkaRules rules = new KafkaRules();
    private int node;
    private volatile Cluster cluster = Cluster.empty();

    @Override
    public void configure(Map<String, ?> configs) {
        node = Integer.parseInt(configs.get("node.id").toString());
        Properties clients = new Properties();
        Object file = configs.get(FILE);
        if (file == null) throw new ConfigException(FILE, null, "names no file");
        try (var reader = Files.newBufferedReader(Path.of(file.toString()), StandardCharsets.UTF_8)) {
            clients.load(reader);
        } catch (IOException e) {
            throw new ConfigException(FILE, file, e.toString());
        }
        for (String client : clients.stringPropertyNames()) {
            List<String> topics = List.of(clients.getProperty(client).trim().split("\\s*,\\s*"));
            if (client.startsWith("user.")) users.put(client.substring("user.".length()), topics);
            else if (client.startsWith("client-id.")) clientIds.put(client.substring("client-id.".length()), topics);
            else throw new ConfigException(FILE, file, client + " begins with neither user. nor client-id.");
        }
    }

    @Override
    public Map<String, String> quotaMetricTags(ClientQuotaType type, KafkaPrincipal principal, String clientId) {
        return rules.tags(type, principal.getName(), clientId);
    }

    @Override
    public Double quotaLimit(ClientQuotaType type, Map<String, String> tags) {
        Double limit = rules.limit(type, tags);
        List<String> topics = users.getOrDefault(
            Sanitizer.desanitize(tags.get(KafkaRules.USER)), clientIds.get(tags.get(KafkaRules.CLIENT_ID)));
        if (limit == null || topics == null || type == ClientQuotaType.CONTROLLER_MUTATION) return limit;
        int led = 0, own = 0;
        for (String topic : topics) {
            for (PartitionInfo partition : cluster.partitionsForTopic(topic)) {
                if (partition.leader() == null || partition.leader().isEmpty()) continue;
                led++;
                if (partition.leader().id() == node) own++;
            }
        }
        // Kafka divides by the limit, so that it is never 0.
        return led == 0 ? limit : Math.max(limit * own / led, 1.0);
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
        this.cluster = cluster;
        return true;
    }

    @Override
    public void close() { }
}
